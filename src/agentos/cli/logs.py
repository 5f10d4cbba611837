"""`agentos logs`: prints the output of one item."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from agentos.cli.find_run import complete_runs
from agentos.cli.shell_complete import completer, logged_items

POLL_INTERVAL = 0.1  # seconds


@dataclass(frozen=True, slots=True)
class ItemLog:
    """The log of an item in one run. The file may not exist yet if the run is in progress."""

    run: Path
    name: str


def _logs(item: str, run_id: str | None, follow: bool, fleet: bool) -> int:
    if fleet:
        from agentos.cli.fleet_views import show_fleet_log

        return show_fleet_log(run_id, item, follow)
    from agentos.cli.find_run import find_run, runs_folder, runs_here
    from agentos.core.errors import NothingMatches
    from agentos.core.planning.items import is_safe_id
    from agentos.core.text.values import natural_order
    from agentos.outputs.format import name_list
    from agentos.storage.runs import run_folders

    if not is_safe_id(item):
        raise click.UsageError(f"invalid item {item!r}: expected an id such as LLD-42")
    run = find_run(run_id)
    everywhere = [] if run_id else run_folders(runs_folder())
    here = [] if run_id else list(runs_here(everywhere))
    first = [] if here and run not in here else [run]
    if log := _find_log([*first, *here], item, follow) or _find_log(everywhere, item, follow):
        if not run_id and log.run not in here:
            _name_project(log.run)
        for line in _log_lines(log, follow):
            click.echo(line, nl=False)
        return 0
    known = sorted((path.stem for path in run.glob("*.log")), key=natural_order)
    raise NothingMatches(
        f"no run has a log of {item!r}; items logged in the last run: {name_list(known) or 'none'}"
    )


def _find_log(runs: list[Path], item: str, follow: bool) -> ItemLog | None:
    """The item's log in the first run that processed it, else in the first that left it to another run."""
    logs = [ItemLog(run, name) for run in runs if (name := _log_name(run, item, follow))]
    return next((log for log in logs if not _was_left_to_another_run(log)), logs[0] if logs else None)


def _log_name(run: Path, item: str, follow: bool) -> str | None:
    """The item's log file; when following a live run, also one that does not exist yet."""
    from agentos.core.planning.items import resolve_item
    from agentos.storage.runs import is_alive, load_run_stats

    names = {path.stem for path in run.glob("*.log")}
    if follow and is_alive(run):
        names |= load_run_stats(run).rows.keys()
    found = resolve_item(item, names)
    return f"{found}.log" if found else None


def _was_left_to_another_run(log: ItemLog) -> bool:
    """Whether the log only says so."""
    from agentos.core.protocol import events
    from agentos.core.protocol.codec import type_marker
    from agentos.core.run_state.run_stats import TAKEN
    from agentos.regular_files import UnsafeFile, read_regular
    from agentos.storage.journal import lines_with

    try:
        if read_regular(log.run / log.name).count(b"\n") != 1:
            return False
        item = log.name.removesuffix(".log")
        endings = [json.loads(line) for line in lines_with(log.run, type_marker(events.ItemEnded))]
        return any(end["item"] == item and end["outcome"]["ending"] in TAKEN for end in endings)
    except (OSError, UnsafeFile, ValueError, KeyError, TypeError):
        return False


def _name_project(run: Path) -> None:
    """Say whose log it is, since other projects have items with the same ids."""
    from agentos.cli.find_run import run_project

    click.echo(f"This is the log of run {run.name} on {run_project(run)}.", err=True)


def _log_lines(log: ItemLog, follow: bool) -> Iterator[str]:
    """The lines written so far and, with `follow`, those to come until the run ends."""
    from agentos.regular_files import open_regular
    from agentos.storage.runs import is_alive

    path = log.run / log.name
    while follow and not path.exists() and is_alive(log.run):
        time.sleep(POLL_INTERVAL)
    if not path.exists():
        return
    with open(open_regular(path), encoding="utf-8", errors="replace") as file:
        while True:
            alive = follow and is_alive(log.run)
            yield from file
            if not alive:
                return
            time.sleep(POLL_INTERVAL)


command = click.Command(
    "logs",
    help="Print an item's output from the last run that worked on it; needs no running process.",
    params=[
        click.Argument(["item"], shell_complete=completer(logged_items)),
        click.Option(
            ["--run", "run_id"],
            metavar="RUN",
            shell_complete=complete_runs,
            help="Run to read, if not the last one.",
        ),
        click.Option(["--follow", "-f"], is_flag=True, help="Keep printing new lines until the run ends."),
        click.Option(
            ["--fleet"], is_flag=True, help="Print the item's output since it was submitted to the fleet."
        ),
    ],
    callback=_logs,
    epilog="\b\nExamples:\n  agentos logs LLD-42\n  agentos logs -f LLD-42\n  agentos logs --fleet LLD-42",
)
