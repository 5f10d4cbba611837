"""`agentos set`: changes the run under way."""

import click

from agentos.cli.asking import ask_run, run_option
from agentos.cli.words import Workers, capped
from agentos.core.bounds import MAX_PARALLEL
from agentos.core.events import WorkersRequested


def _run(parallel: int, run_id: str | None) -> int:
    return ask_run(run_id, WorkersRequested(capped(parallel)), f"set parallel {parallel}")


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
