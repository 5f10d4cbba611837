"""`agentos resume`: goes on with a paused run."""

import click

from agentos.cli.asking import ask_run, run_option
from agentos.core.events import ResumeRequested


def _run(run_id: str | None) -> int:
    return ask_run(run_id, ResumeRequested(), "resume")


command = click.Command(
    "resume",
    help="Go on with a paused run. One that has ended goes on with the command that started it.",
    params=[run_option()],
    callback=_run,
    epilog="\b\nExample:\n  agentos resume",
)
