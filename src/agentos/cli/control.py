"""Asking a run for something, and saying what came of it."""

import time

import click

from agentos.cli.find_run import complete_runs, ending_text, living_run
from agentos.control.client import NotListening, ask
from agentos.core.errors import UsageError
from agentos.core.protocol import events
from agentos.outputs.format import event_text

ANSWERS = (
    events.RunPaused
    | events.RunResumed
    | events.ItemRequeued
    | events.WorkerCountChanged
    | events.ShutdownStarted
    | events.WorkersKilled
)


def send_request(name: str | None, request: events.Request, what: str) -> int:
    """Reaches the run that is meant; gives the exit code."""
    run = living_run(name, what)
    try:
        told = ask(run, request)
    except NotListening as error:
        raise UsageError(f"run {run.name} does not listen any more: {ending_text(run)}") from error
    code = 0
    for event in told:
        if isinstance(event, events.RequestDeclined):
            click.echo(f"Run {run.name}: {event.reason}", err=bool(event.exit_code))
            code = code or event.exit_code
        elif isinstance(event, ANSWERS):
            click.echo(f"Run {run.name}: {event_text(event, time.time())}")
    if not told:
        click.echo(f"Run {run.name} is doing so already.")
    return code


def run_option() -> click.Option:
    return click.Option(
        ["--run", "run_id"],
        metavar="RUN",
        shell_complete=complete_runs,
        help="Another run than the one under way.",
    )
