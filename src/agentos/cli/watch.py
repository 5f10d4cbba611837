"""`agentos watch`: the display of a run that another terminal started."""

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentos.cli.control import run_option
from agentos.core.constants import DISPLAYS

if TYPE_CHECKING:
    from agentos.outputs.display import Display
    from agentos.storage.follow import Follower

POLL = 0.1
KILLED = 137


def _run(run_id: str | None, display: str) -> int:
    from agentos.cli.find_run import ending_text, find_run, liveness_text
    from agentos.config.settings import terminal_info
    from agentos.outputs.display import open_display
    from agentos.storage.follow import Follower
    from agentos.storage.runs import is_alive, load_run_stats

    run = find_run(run_id)
    if not is_alive(run):
        click.echo(f"Run {run.name} is not under way: {ending_text(run)}")
        return _code(run)
    left = threading.Event()
    shown = open_display(display, 1, str, terminal_info(), left.set)
    try:
        shown.write(f"[COORDINATOR] Watching run {run.name}. q or Ctrl-C leaves; the run goes on.")
        _follow(run, Follower(run), shown, left)
    except KeyboardInterrupt:
        left.set()
    finally:
        shown.close()
    if left.is_set():
        click.echo(f"Run {run.name} {liveness_text(run)} Watch it again with: agentos watch --run {run.name}")
        return 0
    if load_run_stats(run).ended is None:
        click.echo(f"Run {run.name}: {ending_text(run)}")
    return _code(run)


def _follow(run: Path, follower: "Follower", shown: "Display", left: threading.Event) -> None:
    """Until the run has ended, or the person or the reader of its lines has left."""
    from agentos.core.protocol import events
    from agentos.outputs.writer import is_reader_gone
    from agentos.storage.runs import is_alive

    for entry in follower.new_events():
        shown.update_only(entry.event, entry.at)
    alive = True
    while alive and not left.wait(POLL):
        alive = is_alive(run)
        if is_reader_gone(1):
            raise BrokenPipeError
        for line in follower.log_lines():
            shown.on_event(line, time.time())
        for entry in follower.new_events():
            # The log tells how an item ended, in its own order with the item's lines.
            tell = shown.update_only if isinstance(entry.event, events.ItemEnded) else shown.on_event
            tell(entry.event, entry.at)


def _code(run: Path) -> int:
    from agentos.storage.runs import load_run_stats

    ended = load_run_stats(run).ended
    return KILLED if ended is None else ended.exit_code


command = click.Command(
    "watch",
    help="The live display of a run that another terminal started; exits with its code. Leaving it stops nothing.",
    params=[
        run_option(),
        click.Option(
            ["--display"],
            type=click.Choice(DISPLAYS),
            default="auto",
            help="As for a run.",
        ),
    ],
    callback=_run,
    epilog="\b\nExamples:\n  agentos watch\n  agentos watch --run 20261115T221503Z",
)
