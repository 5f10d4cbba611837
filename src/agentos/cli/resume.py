"""`agentos resume`: goes on with a paused run."""

import click

from agentos.cli.control import run_option, send_request
from agentos.core.protocol.events import ResumeRequested


def _run(run_id: str | None) -> int:
    return send_request(run_id, ResumeRequested(), "resume")


command = click.Command(
    "resume",
    help="Go on with a paused run. One that has ended goes on with the command that started it.",
    params=[run_option()],
    callback=_run,
    epilog="\b\nExample:\n  agentos resume",
)
