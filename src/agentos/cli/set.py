"""`agentos set`: changes the run under way."""

import click

from agentos.cli.control import run_option, send_request
from agentos.cli.param_types import Workers, capped
from agentos.core.constants import MAX_PARALLEL
from agentos.core.protocol.events import WorkerCountRequested


def _run(parallel: int, run_id: str | None) -> int:
    return send_request(run_id, WorkerCountRequested(capped(parallel)), f"set parallel {parallel}")


command = click.Group(
    "set",
    help="Change the run under way.",
    commands=[
        click.Command(
            "parallel",
            help=f"So many workers side by side from now on, at most {MAX_PARALLEL}; those at work finish.",
            params=[click.Argument(["parallel"], type=Workers(), metavar="N"), run_option()],
            callback=_run,
            epilog="\b\nExample:\n  agentos set parallel 5",
        )
    ],
)
