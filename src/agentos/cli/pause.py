"""`agentos pause`: no further item, no further call."""

import click

from agentos.cli.control import run_option, send_request
from agentos.core.protocol.events import PauseRequested


def _run(now: bool, run_id: str | None) -> int:
    return send_request(run_id, PauseRequested(now), "pause --now" if now else "pause")


command = click.Command(
    "pause",
    help="Start no further item; workers wait at their next model call. Go on with: agentos resume.",
    params=[
        click.Option(["--now"], is_flag=True, help="Workers checkpoint and end at once."),
        run_option(),
    ],
    callback=_run,
    epilog="\b\nExamples:\n  agentos pause\n  agentos pause --now",
)
