"""`agentos watch`: the display of a run that another terminal started."""

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentos.cli.asking import run_option
from agentos.core.bounds import DISPLAYS

if TYPE_CHECKING:
    from agentos.outputs.display import Display
    from agentos.storage.follow import Follower

POLL = 0.1
KILLED = 137


def _run(run_id: str | None, display: str) -> int:
    from agentos.cli.records import find_run, how_it_ended, how_it_goes
    from agentos.outputs.display import Manners, open_display
    from agentos.settings import surroundings
    from agentos.storage.follow import Follower
    from agentos.storage.runs import is_alive, tally_of

    run = find_run(run_id)
    if not is_alive(run):
        click.echo(f"Run {run.name} is not under way: {how_it_ended(run)}")
        return _code(run)
    around, left = surroundings(), threading.Event()
    shown = open_display(display, 1, str, Manners(around.colours, around.simple, around.rewraps), left.set)
    try:
        shown.write(f"[COORDINATOR] Watching run {run.name}. q or Ctrl-C leaves; the run goes on.")
        _follow(run, Follower(run), shown, left)
    except KeyboardInterrupt:
        left.set()
    finally:
        shown.close()
    if left.is_set():
        click.echo(f"Run {run.name} {how_it_goes(run)} Watch it again with: agentos watch --run {run.name}")
        return 0
    if tally_of(run).ended is None:
        click.echo(f"Run {run.name}: {how_it_ended(run)}")
    return _code(run)


def _follow(run: Path, follower: "Follower", shown: "Display", left: threading.Event) -> None:
    """Until the run has ended, or the person or the reader of its lines has left."""
    from agentos.core import events
    from agentos.outputs.writer import is_unread
    from agentos.storage.runs import is_alive

    for entry in follower.look():
        shown.learn(entry.event, entry.at)
    alive = True
    while alive and not left.wait(POLL):
        alive = is_alive(run)
        if is_unread(1):
            raise BrokenPipeError
        for line in follower.said():
            shown.hear(line, time.time())
        for entry in follower.look():
            # The log tells how an item ended, in its own order with the item's lines.
            tell = shown.learn if isinstance(entry.event, events.ItemEnded) else shown.hear
            tell(entry.event, entry.at)


def _code(run: Path) -> int:
    from agentos.storage.runs import tally_of

    ended = tally_of(run).ended
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
