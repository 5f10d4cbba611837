"""`agentos watch` and `wait`: commands that follow a run started in another terminal."""

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentos.cli.find_run import complete_runs, run_option
from agentos.cli.param_types import Duration
from agentos.core.constants import DISPLAYS

if TYPE_CHECKING:
    from agentos.outputs.display import Display
    from agentos.storage.journal import Follower

POLL_INTERVAL = 0.1  # seconds
KILLED, TIMED_OUT = 137, 124  # exit codes


def _watch(run_id: str | None, display: str, fleet: bool) -> int:
    if fleet:
        from agentos.cli.fleet_views import watch_fleet

        return watch_fleet(run_id, display)
    from agentos.cli.find_run import describe_end, find_run, liveness_text
    from agentos.config.settings import terminal_info
    from agentos.outputs.display import open_display
    from agentos.storage.journal import Follower
    from agentos.storage.runs import is_alive, load_run_stats

    run = find_run(run_id)
    if not is_alive(run):
        click.echo(f"Run {run.name} is not in progress: {describe_end(run)}")
        return _exit_code(run)
    quit_requested = threading.Event()
    shown = open_display(display, 1, str, terminal_info(), quit_requested.set)
    try:
        shown.write(f"[COORDINATOR] Watching run {run.name}. q or Ctrl-C quits; the run continues.")
        _follow(run, Follower(run), shown, quit_requested)
    except KeyboardInterrupt:
        quit_requested.set()
    finally:
        shown.close()
    if quit_requested.is_set():
        click.echo(f"Run {run.name} {liveness_text(run)} Watch it again with: agentos watch --run {run.name}")
        return 0
    if load_run_stats(run).ended is None:
        click.echo(f"Run {run.name}: {describe_end(run)}")
    return _exit_code(run)


def _follow(run: Path, follower: "Follower", shown: "Display", quit_requested: threading.Event) -> None:
    """Show the run until it ends, the user quits or the reader of our output is gone."""
    from agentos.core.protocol import events
    from agentos.outputs.writer import is_reader_gone
    from agentos.storage.runs import is_alive

    def show_log_lines() -> None:
        for line in follower.log_lines():
            shown.on_event(line, time.time())

    def show_events(*, catching_up: bool) -> None:
        for entry in follower.new_events():
            if isinstance(entry.event, events.RunEnded):
                # The items' last lines were written before this event, possibly after the logs were read. A short run
                # may even end while we catch up; its last lines are shown anyway.
                show_log_lines()
                shown.on_event(entry.event, entry.at)
            elif catching_up or isinstance(entry.event, events.ItemEnded):
                # The end of an item is also in its log, in order with its other lines: do not print it twice.
                shown.update_only(entry.event, entry.at)
            else:
                shown.on_event(entry.event, entry.at)

    show_events(catching_up=True)
    alive = True
    while alive and not quit_requested.wait(POLL_INTERVAL):
        alive = is_alive(run)
        if is_reader_gone(1):
            raise BrokenPipeError
        show_log_lines()
        show_events(catching_up=False)


def _wait(run_id: str | None, run_option: str | None, timeout: float | None) -> int:
    from agentos.cli.find_run import describe_end, find_run, liveness_text
    from agentos.storage.runs import is_alive, stopped_process

    run = find_run(run_id or run_option)
    deadline = None if timeout is None else time.monotonic() + timeout
    if is_alive(run):
        click.echo(f"Waiting for run {run.name}; Ctrl-C leaves it running...", err=True)
        if stopped_process(run):
            click.echo(f"Run {run.name} {liveness_text(run)}", err=True)
    try:
        while is_alive(run):
            if deadline is not None and time.monotonic() >= deadline:
                click.echo(
                    f"Run {run.name} {liveness_text(run)} Wait longer with: agentos wait --run {run.name}",
                    err=True,
                )
                return TIMED_OUT
            time.sleep(POLL_INTERVAL)
    except KeyboardInterrupt:
        click.echo(f"Run {run.name} {liveness_text(run)} See it with: agentos status {run.name}", err=True)
        return 130
    click.echo(f"Run {run.name}: {describe_end(run)}", err=True)
    return _exit_code(run)


def _exit_code(run: Path) -> int:
    from agentos.storage.runs import load_run_stats

    ended = load_run_stats(run).ended
    return KILLED if ended is None else ended.exit_code


commands: dict[str, click.Command] = {
    "watch": click.Command(
        "watch",
        help="Show the live display of a run started in another terminal, and exit with its code. "
        "Quitting does not stop the run.",
        params=[
            run_option(),
            click.Option(
                ["--display"], type=click.Choice(DISPLAYS), default="auto", help="As for agentos run."
            ),
            click.Option(
                ["--fleet"],
                is_flag=True,
                help="Watch what the fleet does for the project, whoever submitted it, and collect its documents.",
            ),
        ],
        callback=_watch,
        epilog="\b\nExamples:\n  agentos watch\n  agentos watch --run 20261115T221503Z\n  agentos watch --fleet",
    ),
    "wait": click.Command(
        "wait",
        help=f"Wait for a run to end and exit with its code ({KILLED} if it was killed).",
        params=[
            click.Argument(["run_id"], required=False, metavar="[RUN]", shell_complete=complete_runs),
            click.Option(["--run", "run_option"], metavar="RUN", help="Same as the argument."),
            click.Option(
                ["--timeout"], type=Duration(), help=f"Give up after this time with exit code {TIMED_OUT}."
            ),
        ],
        callback=_wait,
        epilog="\b\nExamples:\n  agentos wait\n  agentos wait --timeout 1h",
    ),
}
