"""`agentos retry`: another try for a failed item of the run under way."""

import click

from agentos.cli.control import run_option, send_request
from agentos.cli.shell_complete import completer, failed
from agentos.core.protocol.events import RetryRequested


def _run(item: str, run_id: str | None) -> int:
    return send_request(run_id, RetryRequested(item), f"retry {item}")


command = click.Command(
    "retry",
    help="Put a failed item of the run under way back, from its checkpoint.",
    params=[click.Argument(["item"], shell_complete=completer(failed)), run_option()],
    callback=_run,
    epilog="\b\nExample:\n  agentos retry LLD-42",
)
