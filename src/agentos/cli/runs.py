"""`agentos runs`: the runs of the past."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from agentos.core.tally import Tally


def _run(limit: int) -> int:
    from agentos.cli.records import runs_folder
    from agentos.core.results import Ending
    from agentos.outputs.words import duration
    from agentos.storage.runs import is_alive, run_folders, tally_of

    folders = run_folders(runs_folder())
    if not folders:
        click.echo("No runs yet. Start one with: lld-workflow --all")
        return 0
    for folder in folders[:limit]:
        tally = tally_of(folder)
        if tally.started is None:
            continue
        end = tally.ended
        state = f"exit {end.exit_code}" if end else ("running" if is_alive(folder) else "killed")
        seconds = end.seconds if end else tally.last - tally.began
        click.echo(
            f"{folder.name:<20} {tally.started.workflow:<6} {state:<9} {duration(seconds):>8}  "
            f"{len(tally.rows)} items: {_came_to(tally)}, "
            f"{len(tally.ending(Ending.FAILED))} failed  {tally.started.project}"
        )
    if len(folders) > limit:
        click.echo(f"({len(folders) - limit} older ones: agentos runs --limit {len(folders)})")
    return 0


def _came_to(tally: "Tally") -> str:
    from agentos.core.results import Ending, Verdict

    finished = tally.ending(Ending.FINISHED)
    if finished and not tally.reviewed:
        return f"{len(finished)} done"
    revise = tally.verdicts(Verdict.NEEDS_REVISION)
    return f"{len(tally.verdicts(Verdict.APPROVED))} approved, {len(revise)} to revise"


command = click.Command(
    "runs",
    help="The runs of the past, newest first; needs no running process.",
    params=[click.Option(["--limit"], type=click.IntRange(min=1), default=20, help="At most so many (20).")],
    callback=_run,
    epilog="\b\nExample:\n  agentos runs --limit 5",
)
