"""`agentos logs`: what an item's worker said."""

import time
from collections.abc import Iterator
from pathlib import Path

import click

from agentos.cli.find_run import complete_runs
from agentos.cli.shell_complete import completer, logged

POLL = 0.2


def _run(item: str, run_id: str | None, follow: bool) -> int:
    from agentos.cli.find_run import find_run, runs_folder
    from agentos.core.errors import NothingMatches
    from agentos.core.planning.items import is_safe_id
    from agentos.storage.runs import run_folders

    if not is_safe_id(item):
        raise click.UsageError(f"{item!r} is not an item; expected such as LLD-42")
    folders = [find_run(run_id)] if run_id else [find_run(None), *run_folders(runs_folder())]
    for run in folders:
        if name := _log_of(run, item, follow):
            for line in _lines(run, name, follow):
                click.echo(line, nl=False)
            return 0
    known = sorted(path.stem for path in folders[0].glob("*.log"))
    raise NothingMatches(f"no run has a log of {item!r}; the last one has: {', '.join(known) or 'none'}")


def _log_of(run: Path, item: str, follow: bool) -> str | None:
    """The item's log, also one that is still to come in a run that is followed."""
    from agentos.core.planning.items import resolve_item
    from agentos.storage.runs import is_alive, load_run_stats

    names = {path.stem for path in run.glob("*.log")}
    if follow and is_alive(run):
        names |= load_run_stats(run).rows.keys()
    found = resolve_item(item, names)
    return f"{found}.log" if found else None


def _lines(run: Path, name: str, follow: bool) -> Iterator[str]:
    """What is there, then, if wanted, what comes, until the run has ended."""
    from agentos.storage.runs import is_alive

    while follow and not (run / name).exists() and is_alive(run):
        time.sleep(POLL)
    if not (run / name).exists():
        return
    with open(run / name, encoding="utf-8", errors="replace") as file:
        while True:
            alive = follow and is_alive(run)
            yield from file
            if not alive:
                return
            time.sleep(POLL)


command = click.Command(
    "logs",
    help="What an item's worker said, in the last run that carried it; needs no running process.",
    params=[
        click.Argument(["item"], shell_complete=completer(logged)),
        click.Option(
            ["--run", "run_id"], shell_complete=complete_runs, help="Another run than the last one."
        ),
        click.Option(["--follow", "-f"], is_flag=True, help="Go on until the run has ended."),
    ],
    callback=_run,
    epilog="\b\nExamples:\n  agentos logs LLD-42\n  agentos logs -f LLD-42",
)
