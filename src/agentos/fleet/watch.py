"""Shows what a fleet does with a project's items, whoever submitted them."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

from agentos.core.protocol import events
from agentos.fleet.collect import Collector
from agentos.fleet.fleet_run import report_conflicts
from agentos.fleet.follow import FleetFollower, Followed
from agentos.fleet.replay import as_run, replay
from agentos.fleet.temporal import connect_temporal
from agentos.outputs.display import Display
from agentos.outputs.summary import ending_lines
from agentos.run.signals import Signals
from agentos.storage.postgres.fleet_items import FleetDatabase, FleetEvent, FleetItem

POLL_INTERVAL = 0.25  # seconds


class CatchingUp:
    """A listener that takes earlier events into account without showing them."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self.is_over = False

    def on_event(self, event: events.Event, at: float) -> None:
        if self.is_over:
            self._display.on_event(event, at)
        else:
            self._display.update_only(event, at)

    def close(self) -> None:
        pass


def under_way(database: FleetDatabase) -> dict[str, FleetItem]:
    """All items of the submissions that are not finished yet, including items that have ended."""
    rows = database.items()
    live = {row.submission for row in rows.values() if row.state in ("submitted", "running")}
    return {name: row for name, row in rows.items() if row.submission in live}


def watch(  # noqa: PLR0913 - called in one place
    database: FleetDatabase,
    project: str,
    collector: Collector,
    display: Display,
    signals: Signals,
    quit_requested: threading.Event,
) -> int:
    """Watch until these items have ended or the user quits; returns the exit code of a run."""
    rows = under_way(database)
    shown = CatchingUp(display)
    followed = Followed(project, tuple(rows), {name: row.submission for name, row in rows.items()})

    def is_left() -> bool:
        if signals.arrived:
            quit_requested.set()
        return quit_requested.is_set()

    async def follow() -> int:
        client = await connect_temporal()
        follower = FleetFollower([shown], database, client, collector, followed)
        started = as_run(database, project, str(collector.folder), list(rows.values()))
        cursor = follower.catch_up(started, rows)
        shown.is_over = True
        return await follower.follow(cursor, signals, is_left)

    code = asyncio.run(follow())
    return report_conflicts(collector, display.write) or code


def log_lines(
    database: FleetDatabase, row: FleetItem, follow: bool, pause: Callable[[float], None] = time.sleep
) -> Iterator[str]:
    """The item's log lines since its submission; with `follow`, also new ones until the item has ended."""
    item = row.item
    lines: list[str] = []

    def take(entry: FleetEvent) -> None:
        match entry.event:
            case events.LineWritten():
                lines.append(entry.event.text)
            case events.ItemEnded():
                lines.extend(ending_lines(entry.event))
            case _:
                pass

    cursor = replay(database, {item: row.submission}, take)
    yield from lines
    while follow:
        state = database.items([item])[item]  # before its last events are read
        found, cursor = database.events_after(cursor, [item])
        lines.clear()
        for entry in found:
            take(entry)
        yield from lines
        if not found:
            if state.state not in ("submitted", "running"):
                return
            pause(POLL_INTERVAL)
