"""`agentos stop`: checkpoints and ends a run."""

import click

from agentos.cli.control import run_option, send_request
from agentos.core.protocol.events import StopRequested


def _run(run_id: str | None) -> int:
    return send_request(run_id, StopRequested("SIGTERM"), "stop")


command = click.Command(
    "stop",
    help="Checkpoint and end a run within 5 s, as Ctrl-C does; twice kills its workers. It ends with 143.",
    params=[run_option()],
    callback=_run,
    epilog="\b\nExamples:\n  agentos stop\n  agentos stop && agentos wait",
)
