"""`agentos stop`: checkpoints and ends a run."""

import click

from agentos.cli.asking import ask_run, run_option
from agentos.core.events import StopRequested


def _run(run_id: str | None) -> int:
    return ask_run(run_id, StopRequested("SIGTERM"), "stop")


command = click.Command(
    "stop",
    help="Checkpoint and end a run within 5 s, as Ctrl-C does; twice kills its workers. It ends with 143.",
    params=[run_option()],
    callback=_run,
    epilog="\b\nExamples:\n  agentos stop\n  agentos stop && agentos wait",
)
