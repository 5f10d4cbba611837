"""`agentos retry`: another try for a failed item of the run under way."""

import click

from agentos.cli.asking import ask_run, run_option
from agentos.cli.offering import failed, offering
from agentos.core.events import RetryRequested


def _run(item: str, run_id: str | None) -> int:
    return ask_run(run_id, RetryRequested(item), f"retry {item}")


command = click.Command(
    "retry",
    help="Put a failed item of the run under way back, from its checkpoint.",
    params=[click.Argument(["item"], shell_complete=offering(failed)), run_option()],
    callback=_run,
    epilog="\b\nExample:\n  agentos retry LLD-42",
)
