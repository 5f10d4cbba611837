"""`agentos status`: what a run did, or is doing."""

import json
import time
from typing import Any

import click

from agentos.cli.find_run import complete_runs


def _run(run_id: str | None, run_option: str | None, as_json: bool) -> int:
    from agentos.cli.find_run import everything_over, find_run
    from agentos.config.settings import current_folder
    from agentos.core.protocol.events import RunSuspended
    from agentos.core.protocol.results import Ending
    from agentos.outputs.footer import progress_rows
    from agentos.outputs.format import clock
    from agentos.outputs.resume_command import resume_command, review_command
    from agentos.outputs.summary import as_json as summary_json
    from agentos.storage.runs import is_alive, load_run_stats, stopped_process

    run = find_run(run_id or run_option)
    stats, alive, stopped = load_run_stats(run), is_alive(run), stopped_process(run)
    if stopped and stats.suspended_at is None:
        stats.handle(RunSuspended(), stats.last)  # by a SIGSTOP, of which it could write nothing
    if as_json:
        click.echo(
            json.dumps(
                {
                    **summary_json(stats),
                    "alive": alive,
                    "paused": stats.paused is not None,
                    "suspended": stopped is not None,
                },
                ensure_ascii=False,
            )
        )
        return 0
    if stats.started is None:
        click.echo(f"Run {run.name} has written nothing yet.")
        return 0
    state = _state(stats, alive)
    click.echo(f"Run {run.name} ({stats.started.workflow}) {state}, began {clock(stats.began, time.time())}")
    click.echo(f"  project {stats.started.project}")
    width = max((len(item) for item in stats.rows), default=0)
    at = stats.present(time.time()) if alive else stats.last
    for row in stats.rows.values():
        click.echo(f"  {row.item:<{width}}  {_standing(row, alive, at)}")
    if alive:
        click.echo("\n".join(progress_rows(stats, time.time())))
    here = current_folder()
    again = resume_command(stats.started, here)
    if not alive and stats.ended is None:
        click.echo(f"It was killed. Go on with: {again}")
    elif stats.ended is not None and stats.ended.exit_code:
        click.echo(f"It ended with exit code {stats.ended.exit_code}. Go on with: {again}")
    elif alive:
        click.echo(_what_next(stats, stopped))
    elif parked := stats.ending(Ending.PARKED):
        names = ", ".join(row.item for row in parked)
        click.echo(f"Parked for a person: {names}. Decide with: {review_command(stats.started, here)}")
        click.echo(f"Then go on with: {again}")
    else:
        click.echo(f"{everything_over(stats).capitalize()}. Earlier runs: agentos runs")
    return 0


def _standing(row: Any, alive: bool, at: float) -> str:
    """Where one item is; nothing more of one that has not begun."""
    from agentos.core.text.line_assembler import one_line
    from agentos.outputs.format import count, duration, tokens

    word = "died here" if row.running and not alive else row.status
    if word in ("waiting", "not begun") and not row.usage.calls:
        return str(word)
    where = f" at {row.node}" if row.running and row.node else ""
    error = f"  {one_line(row.outcome.error)}" if row.outcome and row.outcome.error else ""
    return (
        f"{word + where:<26} {count(row.round, 'round'):<9} {duration(row.age(at)):>7} "
        f"{tokens(row.usage.tokens):>6} tokens{error}"
    )


def _state(stats: Any, alive: bool) -> str:
    if stats.ended is not None:
        return "has ended"
    if not alive:
        return "did not end by itself"
    if stats.suspended_at is not None:
        return "stands still (Ctrl-Z)"
    return "is paused" if stats.paused else f"is running with up to {stats.workers} at a time"


def _what_next(stats: Any, stopped: int | None) -> str:
    from agentos.cli.find_run import waking

    if stopped:
        return f"Go on with it: {waking(stopped)}"
    if stats.paused:
        return "Go on with: agentos resume"
    return "Watch it with: agentos watch; one item with: agentos logs -f ITEM; control it with: agentos pause, set, stop"


command = click.Command(
    "status",
    help="What the last run did, or is doing; needs no running process.",
    params=[
        click.Argument(["run_id"], required=False, metavar="[RUN]", shell_complete=complete_runs),
        click.Option(["--run", "run_option"], metavar="RUN", help="The same as the argument."),
        click.Option(["--json", "as_json"], is_flag=True, help="As one JSON object."),
    ],
    callback=_run,
    epilog="\b\nExamples:\n  agentos status\n  agentos status 20261115T221503Z --json",
)
