"""`agentos watch`, `wait` and `logs`: commands that follow a run started in another terminal."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentos.cli.find_run import complete_runs, run_option
from agentos.cli.param_types import Duration
from agentos.cli.shell_complete import completer, logged_items
from agentos.core.constants import DISPLAYS

if TYPE_CHECKING:
    from agentos.outputs.display import Display
    from agentos.storage.journal import Follower

POLL_INTERVAL = 0.1  # seconds
KILLED, TIMED_OUT = 137, 124  # exit codes


def _watch(run_id: str | None, display: str, fleet: bool) -> int:
    if fleet:
        from agentos.cli.fleet_views import watch_fleet

        return watch_fleet(run_id, display)
    from agentos.cli.find_run import describe_end, find_run, liveness_text
    from agentos.config.settings import terminal_info
    from agentos.outputs.display import open_display
    from agentos.storage.journal import Follower
    from agentos.storage.runs import is_alive, load_run_stats

    run = find_run(run_id)
    if not is_alive(run):
        click.echo(f"Run {run.name} is not in progress: {describe_end(run)}")
        return _exit_code(run)
    quit_requested = threading.Event()
    shown = open_display(display, 1, str, terminal_info(), quit_requested.set)
    try:
        shown.write(f"[COORDINATOR] Watching run {run.name}. q or Ctrl-C quits; the run continues.")
        _follow(run, Follower(run), shown, quit_requested)
    except KeyboardInterrupt:
        quit_requested.set()
    finally:
        shown.close()
    if quit_requested.is_set():
        click.echo(f"Run {run.name} {liveness_text(run)} Watch it again with: agentos watch --run {run.name}")
        return 0
    if load_run_stats(run).ended is None:
        click.echo(f"Run {run.name}: {describe_end(run)}")
    return _exit_code(run)


def _follow(run: Path, follower: "Follower", shown: "Display", quit_requested: threading.Event) -> None:
    """Show the run until it ends, the user quits or the reader of our output is gone."""
    from agentos.core.protocol import events
    from agentos.outputs.writer import is_reader_gone
    from agentos.storage.runs import is_alive

    def show_log_lines() -> None:
        for line in follower.log_lines():
            shown.on_event(line, time.time())

    def show_events(*, catching_up: bool) -> None:
        for entry in follower.new_events():
            if isinstance(entry.event, events.RunEnded):
                # The items' last lines were written before this event, possibly after the logs were read. A short run
                # may even end while we catch up; its last lines are shown anyway.
                show_log_lines()
                shown.on_event(entry.event, entry.at)
            elif catching_up or isinstance(entry.event, events.ItemEnded):
                # The end of an item is also in its log, in order with its other lines: do not print it twice.
                shown.update_only(entry.event, entry.at)
            else:
                shown.on_event(entry.event, entry.at)

    show_events(catching_up=True)
    alive = True
    while alive and not quit_requested.wait(POLL_INTERVAL):
        alive = is_alive(run)
        if is_reader_gone(1):
            raise BrokenPipeError
        show_log_lines()
        show_events(catching_up=False)


def _wait(run_id: str | None, timeout: float | None) -> int:
    from agentos.cli.find_run import describe_end, find_run, liveness_text
    from agentos.storage.runs import is_alive, stopped_process

    run = find_run(run_id)
    deadline = None if timeout is None else time.monotonic() + timeout
    if is_alive(run):
        click.echo(f"Waiting for run {run.name}; Ctrl-C leaves it running...", err=True)
        if stopped_process(run):
            click.echo(f"Run {run.name} {liveness_text(run)}", err=True)
    try:
        while is_alive(run):
            if deadline is not None and time.monotonic() >= deadline:
                click.echo(
                    f"Run {run.name} {liveness_text(run)} Wait longer with: agentos wait --run {run.name}",
                    err=True,
                )
                return TIMED_OUT
            time.sleep(POLL_INTERVAL)
    except KeyboardInterrupt:
        click.echo(f"Run {run.name} {liveness_text(run)} See it with: agentos status {run.name}", err=True)
        return 130
    click.echo(f"Run {run.name}: {describe_end(run)}", err=True)
    return _exit_code(run)


def _exit_code(run: Path) -> int:
    from agentos.storage.runs import load_run_stats

    ended = load_run_stats(run).ended
    return KILLED if ended is None else ended.exit_code


def _logs(item: str, run_id: str | None, follow: bool, fleet: bool) -> int:
    if fleet:
        from agentos.cli.fleet_views import show_fleet_log

        return show_fleet_log(run_id, item, follow)
    from agentos.cli.find_run import find_run, runs_folder
    from agentos.core.errors import NothingMatches
    from agentos.core.planning.items import is_safe_id
    from agentos.core.text.values import natural_order
    from agentos.outputs.format import name_list
    from agentos.storage.runs import run_folders

    if not is_safe_id(item):
        raise click.UsageError(f"invalid item {item!r}: expected an id such as LLD-42")
    folders = [find_run(run_id)] if run_id else [find_run(None), *run_folders(runs_folder())]
    for run in folders:
        if name := _log_name(run, item, follow):
            for line in _log_lines(run, name, follow):
                click.echo(line, nl=False)
            return 0
    known = sorted((path.stem for path in folders[0].glob("*.log")), key=natural_order)
    raise NothingMatches(
        f"no run has a log of {item!r}; items logged in the last run: {name_list(known) or 'none'}"
    )


def _log_name(run: Path, item: str, follow: bool) -> str | None:
    """The item's log file; when following a live run, also one that does not exist yet."""
    from agentos.core.planning.items import resolve_item
    from agentos.storage.runs import is_alive, load_run_stats

    names = {path.stem for path in run.glob("*.log")}
    if follow and is_alive(run):
        names |= load_run_stats(run).rows.keys()
    found = resolve_item(item, names)
    return f"{found}.log" if found else None


def _log_lines(run: Path, name: str, follow: bool) -> Iterator[str]:
    """The lines written so far and, with `follow`, those to come until the run ends."""
    from agentos.regular_files import open_regular
    from agentos.storage.runs import is_alive

    while follow and not (run / name).exists() and is_alive(run):
        time.sleep(POLL_INTERVAL)
    if not (run / name).exists():
        return
    with open(open_regular(run / name), encoding="utf-8", errors="replace") as file:
        while True:
            alive = follow and is_alive(run)
            yield from file
            if not alive:
                return
            time.sleep(POLL_INTERVAL)


commands: dict[str, click.Command] = {
    "watch": click.Command(
        "watch",
        help="Show the live display of a run started in another terminal, and exit with its code. "
        "Quitting does not stop the run.",
        params=[
            run_option(),
            click.Option(
                ["--display"], type=click.Choice(DISPLAYS), default="auto", help="As for agentos run."
            ),
            click.Option(
                ["--fleet"],
                is_flag=True,
                help="Watch what the fleet does for the project, whoever submitted it, and collect its documents.",
            ),
        ],
        callback=_watch,
        epilog="\b\nExamples:\n  agentos watch\n  agentos watch --run 20261115T221503Z\n  agentos watch --fleet",
    ),
    "wait": click.Command(
        "wait",
        help=f"Wait for a run to end and exit with its code ({KILLED} if it was killed).",
        params=[
            run_option(),
            click.Option(
                ["--timeout"], type=Duration(), help=f"Give up after this time with exit code {TIMED_OUT}."
            ),
        ],
        callback=_wait,
        epilog="\b\nExamples:\n  agentos wait\n  agentos wait --timeout 1h",
    ),
    "logs": click.Command(
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
            click.Option(
                ["--follow", "-f"], is_flag=True, help="Keep printing new lines until the run ends."
            ),
            click.Option(
                ["--fleet"], is_flag=True, help="Print the item's output since it was submitted to the fleet."
            ),
        ],
        callback=_logs,
        epilog="\b\nExamples:\n  agentos logs LLD-42\n  agentos logs -f LLD-42\n  agentos logs --fleet LLD-42",
    ),
}
