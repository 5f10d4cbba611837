"""`agentos wait`: until a run has ended."""

import time

import click

from agentos.cli.control import run_option
from agentos.cli.param_types import Duration

POLL = 0.1
KILLED, TIMED_OUT = 137, 124


def _run(run_id: str | None, timeout: float | None) -> int:
    from agentos.cli.find_run import ending_text, find_run, liveness_text
    from agentos.storage.runs import is_alive, load_run_stats, stopped_process

    run = find_run(run_id)
    ends = None if timeout is None else time.monotonic() + timeout
    if is_alive(run):
        click.echo(f"Waiting for run {run.name}; Ctrl-C leaves it running...", err=True)
        if stopped_process(run):
            click.echo(f"Run {run.name} {liveness_text(run)}", err=True)
    try:
        while is_alive(run):
            if ends is not None and time.monotonic() >= ends:
                click.echo(
                    f"Run {run.name} {liveness_text(run)} Wait longer with: agentos wait --run {run.name}",
                    err=True,
                )
                return TIMED_OUT
            time.sleep(POLL)
    except KeyboardInterrupt:
        click.echo(f"Run {run.name} {liveness_text(run)} See it with: agentos status {run.name}", err=True)
        return 130
    ended = load_run_stats(run).ended
    click.echo(f"Run {run.name}: {ending_text(run)}", err=True)
    return KILLED if ended is None else ended.exit_code


command = click.Command(
    "wait",
    help=f"Wait for the end of a run, and exit with its code: that of one that was killed is {KILLED}.",
    params=[
        run_option(),
        click.Option(["--timeout"], type=Duration(), help=f"No longer than this; then exit {TIMED_OUT}."),
    ],
    callback=_run,
    epilog="\b\nExamples:\n  agentos wait\n  agentos wait --timeout 1h",
)
