"""Follows items of a fleet: feeds the workers' events to the listeners of a run, and collects documents."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError

from agentos.core.errors import PreflightError
from agentos.core.planning.submission import thread_id
from agentos.core.protocol import events
from agentos.core.protocol.ports import Clock, Listener
from agentos.core.protocol.results import Ending, Outcome, Usage, failed
from agentos.core.ratelimit.refusals import RefusalKind
from agentos.core.scheduling.control import EXIT_CODES
from agentos.fleet.collect import Collector
from agentos.fleet.machine_usage import UsageOverMachines
from agentos.fleet.replay import replay
from agentos.fleet.temporal import cancel_items, map_bounded, workflow_status
from agentos.run.session import HOST_CLOCK
from agentos.run.signals import Signals
from agentos.storage.postgres.connecting import is_away
from agentos.storage.postgres.fleet_items import EventCursor, FleetDatabase, FleetEvent, FleetItem

POLL_INTERVAL = 0.25  # seconds
STOP_TIMEOUT = 5.0  # seconds after Ctrl-C for the items to be checkpointed
CHECK_INTERVAL = 10.0  # seconds between checks for items whose workflow is gone
HEARTBEAT_INTERVAL = 60.0  # seconds


def is_over_budget(event: events.LeaseReleased) -> bool:
    return event.refusal is not None and event.refusal.kind is RefusalKind.OVER_BUDGET


@dataclass(frozen=True, slots=True)
class Followed:
    """Items of a project. `own` are those that this command submitted: Ctrl-C stops them. Events of submissions older than
    an item's entry in `floors` are ignored."""

    project: str
    items: tuple[str, ...]
    floors: Mapping[str, int]
    own: tuple[str, ...] = ()


class FleetFollower:
    """Each pass reads new events, publishes them, and collects the documents of items that have ended."""

    def __init__(  # noqa: PLR0913 - built in one place
        self,
        listeners: Sequence[Listener],
        database: FleetDatabase,
        client: Client,
        collector: Collector,
        followed: Followed,
        check_interval: float = CHECK_INTERVAL,
        clock: Clock = HOST_CLOCK,
    ) -> None:
        self._clock = clock
        self._listeners = listeners
        self._database = database
        self._client = client
        self._collector = collector
        self._followed = followed
        self._unfinished = dict.fromkeys(followed.items)
        self._endings: dict[str, Ending] = {}
        self._started_at = self._clock.monotonic()
        self._usage = UsageOverMachines()
        self._waited_seconds = 0.0
        self._missing: set[str] = set()
        self._left: set[str] = set()
        self._is_collected = True
        self._exit_code: int | None = None
        self._over_budget = ""
        self._leave_at: float | None = None
        self._check_interval = check_interval
        self._check_at = self._started_at + check_interval
        self._heartbeat_at = self._started_at + HEARTBEAT_INTERVAL

    async def run(self, started: events.RunStarted, cursor: EventCursor, signals: Signals) -> int:
        self._publish(started, self._clock.wall())
        return await self.follow(cursor, signals)

    def catch_up(self, started: events.RunStarted, rows: Mapping[str, FleetItem]) -> EventCursor:
        """Publish everything that the workers have written so far; returns the position to follow from."""
        replayed: list[FleetEvent] = []
        cursor = replay(self._database, self._followed.floors, replayed.append)
        self._publish(started, replayed[0].at if replayed else self._clock.wall())
        for entry in replayed:
            self.handle(entry)
        for item in list(self._unfinished):
            row = rows[item]
            if (
                row.outcome and not row.is_live
            ):  # no worker recorded its end: it was stopped before any machine took it
                self._end(item, row.outcome)
                self._left.discard(item)  # it may be retried
        return cursor

    async def follow(
        self, cursor: EventCursor, signals: Signals, is_left: Callable[[], bool] = lambda: False
    ) -> int:
        """Follow until all items have ended or `is_left` says to leave, which stops no item. Returns the exit code of a run."""
        while self._unfinished and not is_left():
            cursor = await self._read(cursor)
            while signals.arrived:
                await self._handle_signal(signals.arrived.pop(0))
            if self._over_budget and self._exit_code is None:
                await self._stop(events.ShutdownStarted("budget", self._over_budget), 75)
            now = self._clock.monotonic()
            if self._leave_at is not None and now >= self._leave_at:
                self._end_all(Outcome(Ending.INTERRUPTED))
            if now >= self._heartbeat_at:
                self._heartbeat_at = now + HEARTBEAT_INTERVAL
                self._publish(events.Heartbeat(now - self._started_at), self._clock.wall())
            if now >= self._check_at and self._unfinished:
                self._check_at = now + self._check_interval
                cursor = await self._end_lost(cursor)
            if self._unfinished:
                await asyncio.sleep(POLL_INTERVAL)
        while not self._is_collected:
            await self._collect()
            await asyncio.sleep(0 if self._is_collected else POLL_INTERVAL)
        code = self._code()
        if not self._unfinished:
            ended = events.RunEnded(code, self._clock.monotonic() - self._started_at, self._waited_seconds)
            self._publish(ended, self._clock.wall())
        return code

    async def _read(self, cursor: EventCursor) -> EventCursor:
        """Publish new events. There are none while Postgres is unreachable."""
        while self._unfinished:
            try:
                found, cursor = await asyncio.to_thread(
                    self._database.events_after, cursor, self._followed.items
                )
            except Exception as error:
                if not is_away(error):
                    raise
                return cursor
            if not found:
                return cursor
            for entry in found:
                self.handle(entry)
            await self._collect()
        return cursor

    def handle(self, entry: FleetEvent) -> None:
        """Publish an event of these items."""
        if 0 < entry.submission < self._followed.floors.get(entry.item, 0):
            return  # of an earlier submission; a long transaction has delayed it until now
        if entry.item in self._left:
            return
        event = self._usage.handle(entry.event)
        if isinstance(event, events.LeaseGranted):
            self._waited_seconds += event.waited_seconds
        if (
            isinstance(event, events.LeaseReleased)
            and entry.item in self._followed.own
            and is_over_budget(event)
        ):
            self._over_budget = event.refusal.reason if event.refusal else ""
        if isinstance(event, events.ItemStarted | events.ItemRequeued):
            # It continues after a review, or somebody retries it.
            self._endings.pop(entry.item, None)
            self._unfinished[entry.item] = None
        if isinstance(event, events.ItemEnded):
            self._unfinished.pop(entry.item, None)
            self._endings[entry.item] = event.outcome.ending
            self._is_collected = False
        self._publish(event, entry.at)

    async def _collect(self) -> None:
        """Collect everything that is done. If Postgres is unreachable, the next pass or the end tries again."""
        try:
            await asyncio.to_thread(self._collector.collect_all)
            self._is_collected = True
        except Exception as error:
            if not is_away(error):
                raise

    async def _handle_signal(self, signal: str) -> None:
        if signal not in EXIT_CODES:
            return
        if self._exit_code in EXIT_CODES.values():
            self._end_all(Outcome(Ending.INTERRUPTED))
        else:
            await self._stop(events.ShutdownStarted(signal), EXIT_CODES[signal])

    async def _stop(self, started: events.ShutdownStarted, exit_code: int) -> None:
        """Stop our own items, as a run stops its workers."""
        self._exit_code = exit_code
        self._leave_at = self._clock.monotonic() + STOP_TIMEOUT
        self._publish(started, self._clock.wall())
        own = [item for item in self._followed.own if item in self._unfinished]
        try:
            async with asyncio.timeout(STOP_TIMEOUT):
                await cancel_items(self._client, self._followed.project, own)
                for item in await asyncio.to_thread(self._database.end_unstarted, own):
                    self._end(item, Outcome(Ending.INTERRUPTED))
        except Exception as error:
            if not (isinstance(error, PreflightError | TimeoutError) or is_away(error)):
                raise
        # Somebody else submitted the others: they keep running, we only stop following them.
        for item in [item for item in self._unfinished if item not in own]:
            self._end(item, Outcome(Ending.INTERRUPTED))

    async def _end_lost(self, cursor: EventCursor) -> EventCursor:
        """End items whose workflow ended without recording an outcome: Temporal gave up, or an operator terminated it.

        An item must be missing at two checks in a row: its last events may still be hidden behind an older
        transaction, or somebody may just be submitting it again.
        """
        waiting = list(self._unfinished)
        try:
            found = await map_bounded(lambda item: workflow_status(self._client, self._thread(item)), waiting)
            cursor = await self._read(cursor)  # its last events may have been written in the meantime
            rows = await asyncio.to_thread(self._database.items, waiting)
        except Exception as error:
            if isinstance(error, RPCError) or is_away(error):
                return cursor  # the next check asks again
            raise
        missing = {
            item: status
            for item, status in zip(waiting, found, strict=True)
            if status is not WorkflowExecutionStatus.RUNNING and item in self._unfinished
        }
        for item in missing.keys() & self._missing:
            self._end_missing(item, missing[item], rows.get(item))
        self._missing = set(missing)
        return cursor

    def _end_missing(self, item: str, status: WorkflowExecutionStatus | None, row: FleetItem | None) -> None:
        if row and row.outcome and not row.is_live:
            self._is_collected = False
            self._end(item, row.outcome)
        elif status is WorkflowExecutionStatus.CANCELED:  # before any machine took it
            with contextlib.suppress(Exception):
                self._database.end_unstarted([item])
            self._end(item, Outcome(Ending.INTERRUPTED))
        else:
            outcome = failed("the fleet has given it up: see its workflow in Temporal for the reason")
            with contextlib.suppress(Exception):
                self._database.fail(item, outcome)
            self._end(item, outcome)

    def _end_all(self, outcome: Outcome) -> None:
        for item in list(self._unfinished):
            self._end(item, outcome)

    def _end(self, item: str, outcome: Outcome) -> None:
        self._unfinished.pop(item, None)
        self._left.add(item)
        self._endings[item] = outcome.ending
        self._publish(events.ItemEnded(item, outcome, 0.0, Usage(), 0), self._clock.wall())

    def _code(self) -> int:
        if self._exit_code is not None:
            return self._exit_code
        endings = self._endings.values()
        return 75 if Ending.INTERRUPTED in endings else int(Ending.FAILED in endings)

    def _publish(self, event: events.Event, at: float) -> None:
        for listener in self._listeners:
            listener.on_event(event, round(at, 3))

    def _thread(self, item: str) -> str:
        return thread_id(self._followed.project, item)
