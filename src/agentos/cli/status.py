"""`agentos status`: what a run did, or is doing."""

import json
import time
from typing import Any

import click

from agentos.cli.records import complete_runs


def _run(run_id: str | None, run_option: str | None, as_json: bool) -> int:
    from agentos.cli.records import everything_over, find_run
    from agentos.core.events import RunSuspended
    from agentos.core.results import Ending
    from agentos.outputs.again import go_on, review
    from agentos.outputs.footer import progress_rows
    from agentos.outputs.summary import as_json as summary_json
    from agentos.outputs.words import clock
    from agentos.settings import current_folder
    from agentos.storage.runs import is_alive, stopped_process, tally_of

    run = find_run(run_id or run_option)
    tally, alive, stopped = tally_of(run), is_alive(run), stopped_process(run)
    if stopped and tally.suspended_at is None:
        tally.hear(RunSuspended(), tally.last)  # by a SIGSTOP, of which it could write nothing
    if as_json:
        click.echo(
            json.dumps(
                {
                    **summary_json(tally),
                    "alive": alive,
                    "paused": tally.paused is not None,
                    "suspended": stopped is not None,
                },
                ensure_ascii=False,
            )
        )
        return 0
    if tally.started is None:
        click.echo(f"Run {run.name} has written nothing yet.")
        return 0
    state = _state(tally, alive)
    click.echo(f"Run {run.name} ({tally.started.workflow}) {state}, began {clock(tally.began, time.time())}")
    click.echo(f"  project {tally.started.project}")
    width = max((len(item) for item in tally.rows), default=0)
    at = tally.present(time.time()) if alive else tally.last
    for row in tally.rows.values():
        click.echo(f"  {row.item:<{width}}  {_standing(row, alive, at)}")
    if alive:
        click.echo("\n".join(progress_rows(tally, time.time())))
    here = current_folder()
    again = go_on(tally.started, here)
    if not alive and tally.ended is None:
        click.echo(f"It was killed. Go on with: {again}")
    elif tally.ended is not None and tally.ended.exit_code:
        click.echo(f"It ended with exit code {tally.ended.exit_code}. Go on with: {again}")
    elif alive:
        click.echo(_what_next(tally, stopped))
    elif parked := tally.ending(Ending.PARKED):
        names = ", ".join(row.item for row in parked)
        click.echo(f"Parked for a person: {names}. Decide with: {review(tally.started, here)}")
        click.echo(f"Then go on with: {again}")
    else:
        click.echo(f"{everything_over(tally).capitalize()}. Earlier runs: agentos runs")
    return 0


def _standing(row: Any, alive: bool, at: float) -> str:
    """Where one item is; nothing more of one that has not begun."""
    from agentos.core.lines import one_line
    from agentos.outputs.words import count, duration, tokens

    word = "died here" if row.running and not alive else row.word
    if word in ("waiting", "not begun") and not row.usage.calls:
        return str(word)
    where = f" at {row.node}" if row.running and row.node else ""
    error = f"  {one_line(row.outcome.error)}" if row.outcome and row.outcome.error else ""
    return (
        f"{word + where:<26} {count(row.round, 'round'):<9} {duration(row.age(at)):>7} "
        f"{tokens(row.usage.tokens):>6} tokens{error}"
    )


def _state(tally: Any, alive: bool) -> str:
    if tally.ended is not None:
        return "has ended"
    if not alive:
        return "did not end by itself"
    if tally.suspended_at is not None:
        return "stands still (Ctrl-Z)"
    return "is paused" if tally.paused else f"is running with up to {tally.workers} at a time"


def _what_next(tally: Any, stopped: int | None) -> str:
    from agentos.cli.records import waking

    if stopped:
        return f"Go on with it: {waking(stopped)}"
    if tally.paused:
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
