"""`agentos pause`, `retry`, `set` and `stop`: requests to a run in progress."""

import time

import click

from agentos.cli.find_run import describe_end, find_live_run, resume_hint, run_option
from agentos.cli.param_types import Workers
from agentos.cli.shell_complete import completer, failed_items
from agentos.control.client import NotListening, ask
from agentos.core.constants import MAX_PARALLEL
from agentos.core.errors import UsageError
from agentos.core.protocol import events
from agentos.outputs.format import event_text, over_maximum

REPLIES = (
    events.RunPaused
    | events.RunResumed
    | events.ItemRequeued
    | events.WorkerCountChanged
    | events.ShutdownStarted
    | events.WorkersKilled
)


def send_request(run_id: str | None, request: events.Request, subcommand: str) -> int:
    """Send a request to the chosen run, print its replies and return the exit code.

    `subcommand` is what the user typed after `agentos`; it is repeated with `--run` if several runs match.
    """
    run = find_live_run(run_id, subcommand)
    try:
        replies = ask(run, request)
    except NotListening as error:
        raise UsageError(f"run {run.name} no longer accepts requests: {describe_end(run)}") from error
    exit_code = 0
    for event in replies:
        if isinstance(event, events.RequestDeclined):
            click.echo(f"Run {run.name}: {event.reason}", err=bool(event.exit_code))
            exit_code = exit_code or event.exit_code
        elif isinstance(event, REPLIES):
            _warn_if_capped(request, event)
            text = event_text(event, time.time())
            if text and isinstance(event, events.RunPaused):
                text = text.replace("agentos resume", resume_hint(run))
            click.echo(f"Run {run.name}: {text}")
    if not replies:
        click.echo(f"Run {run.name} is already in that state.")
    return exit_code


def _warn_if_capped(request: events.Request, reply: events.Event) -> None:
    """Only the run knows its maximum."""
    match request, reply:
        case events.WorkerCountRequested(requested), events.WorkerCountChanged(workers) if (
            workers < requested
        ):
            click.echo(f"Warning: {over_maximum(requested, workers)}", err=True)


def _pause(now: bool, run_id: str | None) -> int:
    return send_request(run_id, events.PauseRequested(now), "pause --now" if now else "pause")


def _stop(run_id: str | None, fleet: bool) -> int:
    if fleet:
        from agentos.cli.fleet_views import stop_fleet

        return stop_fleet(run_id)
    return send_request(run_id, events.StopRequested("SIGTERM"), "stop")


def _retry(item: str, run_id: str | None, fleet: bool) -> int:
    if fleet:
        from agentos.cli.fleet_views import retry_on_fleet

        return retry_on_fleet(run_id, item)
    return send_request(run_id, events.RetryRequested(item), f"retry {item}")


def _set_parallel(parallel: int, run_id: str | None) -> int:
    shown = parallel or "auto"
    return send_request(run_id, events.WorkerCountRequested(parallel), f"set parallel {shown}")


commands: dict[str, click.Command] = {
    "pause": click.Command(
        "pause",
        help="Start no new items; workers wait before their next model call. Resume with: agentos resume.",
        params=[
            click.Option(["--now"], is_flag=True, help="Checkpoint and end all workers immediately."),
            run_option(),
        ],
        callback=_pause,
        epilog="\b\nExamples:\n  agentos pause\n  agentos pause --now",
    ),
    "stop": click.Command(
        "stop",
        help="Checkpoint and end a run within 5 s, as Ctrl-C does; a second stop kills its workers. "
        "The run exits with 143.",
        params=[
            run_option(),
            click.Option(
                ["--fleet"],
                is_flag=True,
                help="Stop the project's items on the fleet, whoever submitted them.",
            ),
        ],
        callback=_stop,
        epilog="\b\nExamples:\n  agentos stop\n  agentos stop && agentos wait",
    ),
    "retry": click.Command(
        "retry",
        help="Put a failed item back into the run in progress; it continues from its checkpoint.",
        params=[
            click.Argument(["item"], shell_complete=completer(failed_items)),
            run_option(),
            click.Option(
                ["--fleet"],
                is_flag=True,
                help="Submit the failed item to the fleet again, whoever submitted it; needs no run.",
            ),
        ],
        callback=_retry,
        epilog="\b\nExamples:\n  agentos retry LLD-42\n  agentos retry --fleet LLD-42",
    ),
    "set": click.Group(
        "set",
        help="Change a setting of the run in progress.",
        commands=[
            click.Command(
                "parallel",
                help=f"Change the number of workers, up to {MAX_PARALLEL} or the run's max_parallel; with auto, the run "
                "follows its keys and the machine. Busy workers finish their items first.",
                params=[click.Argument(["parallel"], type=Workers(), metavar="N|auto"), run_option()],
                callback=_set_parallel,
                epilog="\b\nExamples:\n  agentos set parallel 5\n  agentos set parallel auto",
            )
        ],
    ),
}
