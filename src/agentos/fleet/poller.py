"""Temporal's side of a worker: polls for items in a thread of its own and reports how each turn ended."""

import asyncio
import contextlib
import logging
import random
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from agentos.core.backoff import Jitter
from agentos.core.planning.submission import thread_id
from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Usage, failed
from agentos.core.text.line_assembler import one_line
from agentos.fleet.active_items import ActiveItem, ActiveItems, PreparedItem
from agentos.fleet.item_workflow import ACTIVITY, ItemWorkflow
from agentos.fleet.temporal import connect_temporal, queue_of
from agentos.fleet.turns import DRAINED, FINISHED, Turn, TurnEnd, TurnResult, turn_end
from agentos.storage.postgres.connecting import is_away
from agentos.storage.postgres.event_writer import EventWriter, ItemClaim
from agentos.storage.postgres.fleet_items import FleetDatabase, LoadedTask

HEARTBEAT_INTERVAL = 1.0  # seconds
DRAIN_TIMEOUT = 9.0  # seconds
RETRY_INTERVAL = 0.5  # seconds
HAND_OVER_TIMEOUT = 4.0  # seconds that a draining worker waits for Postgres before it hands its items over without a final record
Found = TypeVar("Found")
OnTurnEnd = Callable[[Turn, ItemClaim, TurnEnd | None, float], None]
Serving = Callable[[Callable[[], bool]], AbstractAsyncContextManager[str]]
"""Serves metrics and health; its argument says whether items can be accepted."""


class TemporalPoller:
    """Runs one Temporal worker per installed workflow. `start` returns once it is connected, or raises.

    Each takes up to `parallel` items, because Temporal has no limit across queues. `failure` is the error that ended one of
    them for good.
    """

    def __init__(  # noqa: PLR0913 - built in one place
        self,
        active_items: ActiveItems,
        writer: EventWriter,
        database: FleetDatabase,
        prepare: Callable[[LoadedTask], PreparedItem],
        scratch: Path,
        machine: str,
        workflows: Sequence[str],
        parallel: int,
        serving: Serving | None = None,
        on_turn_end: OnTurnEnd = lambda *_: None,
        jitter: Jitter = random.random,
        wall: Callable[[], float] = time.time,
        heartbeat_interval: float = HEARTBEAT_INTERVAL,
    ) -> None:
        self._active_items = active_items
        self._writer = writer
        self._database = database
        self._database_lock = asyncio.Lock()  # one connection, many activities
        self._prepare = prepare
        self._scratch = scratch
        self._machine = machine
        self.failure: BaseException | None = None
        self._workflows = workflows
        self._parallel = parallel
        self._serving = serving
        self._on_turn_end = on_turn_end
        self._jitter = jitter
        self._wall = wall
        self._heartbeat_interval = heartbeat_interval
        self._connected: Future[Client] = Future()
        self._stopping: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="temporal", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._connected.result()

    def drain(self) -> None:
        """Accept no more items; active ones return as drained when their processes have ended."""
        self._active_items.is_draining = True
        if self._loop and self._stopping:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stopping.set)

    def join(self) -> None:
        self._thread.join(DRAIN_TIMEOUT)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        # The SDK logs a traceback for every cancelled activity; the item's own record says what happened.
        logging.getLogger("temporalio").setLevel(logging.CRITICAL)
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        async with contextlib.AsyncExitStack() as stack:
            try:
                if self._serving:
                    await stack.enter_async_context(self._serving(self._is_ready))
                client = await connect_temporal()
            except BaseException as error:
                self._connected.set_exception(error)
                return
            await self._poll(client, self._stopping)

    def _is_ready(self) -> bool:
        return self._connected.done() and not self._active_items.is_draining

    async def _poll(self, client: Client, stopping: asyncio.Event) -> None:
        workers = [self._worker(client, workflow) for workflow in self._workflows]
        running = [asyncio.ensure_future(worker.run()) for worker in workers]
        self._connected.set_result(client)
        await asyncio.wait(
            [asyncio.ensure_future(stopping.wait()), *running], return_when=asyncio.FIRST_COMPLETED
        )
        for task in running:
            if task.done() and (error := task.exception()):
                await self._fail(error)
        await asyncio.gather(*(worker.shutdown() for worker in workers))
        await asyncio.gather(*running, return_exceptions=True)

    async def _fail(self, error: BaseException) -> None:
        if not self._active_items.is_draining:
            self._active_items.is_draining = True
            self.failure = error
            self._active_items.wake()

    def _worker(self, client: Client, workflow: str) -> Worker:
        return Worker(
            client,
            task_queue=queue_of(workflow),
            workflows=[ItemWorkflow],
            activities=[self.run_item],
            max_concurrent_activities=self._parallel,
            max_heartbeat_throttle_interval=timedelta(seconds=self._heartbeat_interval),
            default_heartbeat_throttle_interval=timedelta(seconds=self._heartbeat_interval),
            graceful_shutdown_timeout=timedelta(seconds=DRAIN_TIMEOUT),
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=2),
            on_fatal_error=self._fail,
        )

    @activity.defn(name=ACTIVITY)
    async def run_item(self, turn: Turn) -> TurnResult:
        """Run one turn: claim, run, report. Sends heartbeats throughout, also while Postgres is unreachable."""
        heartbeat = asyncio.create_task(_heartbeat(self._heartbeat_interval))
        try:
            return await self._run_item(turn)
        except _PostgresUnavailable:
            return TurnResult(DRAINED)
        except asyncio.CancelledError:
            # The drain timed out while this turn was reading or writing: without a result, Temporal would count an attempt.
            if not self._active_items.is_draining or _is_cancel_requested():
                raise
            return TurnResult(DRAINED)
        finally:
            heartbeat.cancel()

    async def _run_item(self, turn: Turn) -> TurnResult:
        thread = thread_id(turn.project, turn.item)
        claim = ItemClaim(thread, (turn.submission, turn.turn, activity.info().attempt))
        loaded = await self._ask(partial(self._database.load, thread, turn.submission))
        if loaded is None:
            raise ApplicationError(f"{thread} is not in Postgres", non_retryable=True)
        try:
            prepared = await self._ask(partial(self._prepare, loaded))
        except _PostgresUnavailable:
            raise
        except Exception as error:
            return await self._reject(turn, claim, one_line(str(error)))
        key = f"{turn.project}.{turn.item}"
        active_item = ActiveItem(key, turn, claim, loaded, prepared, self._scratch / key)
        while not self._active_items.add(active_item):
            if self._active_items.is_draining:
                return TurnResult(DRAINED)
            await asyncio.sleep(RETRY_INTERVAL)  # an outranked turn of the same item is still ending here
        ended = asyncio.wrap_future(active_item.ended)
        try:
            event = await asyncio.shield(ended)
        except asyncio.CancelledError:
            # Cancelled, or the drain timed out: the process ends at its next node, checkpointed.
            self._active_items.request_withdrawal(active_item)
            event = await asyncio.shield(ended)
            if not self._active_items.is_draining:
                # After a missed heartbeat Temporal retries elsewhere: only a requested cancellation is an outcome.
                if _is_cancel_requested():
                    await self._record(turn, claim, event)
                raise
        finally:
            shutil.rmtree(active_item.scratch, ignore_errors=True)
        return await self._record(turn, claim, event)

    async def _reject(self, turn: Turn, claim: ItemClaim, reason: str) -> TurnResult:
        """End an item whose process cannot be started."""
        outcome = failed(f"cannot start on {self._machine}: {reason}")
        return await self._record(turn, claim, events.ItemEnded(turn.item, outcome, 0.0, Usage(), 0))

    async def _ask(self, question: Callable[[], Found]) -> Found:
        """Run a database operation in a thread and return its result; waits while Postgres is unreachable."""
        while True:
            try:
                async with self._database_lock:
                    return await asyncio.to_thread(question)
            except Exception as error:
                if not is_away(error):
                    raise
                if self._active_items.is_draining:
                    raise _PostgresUnavailable from error
            await asyncio.sleep(RETRY_INTERVAL)

    async def _record(self, turn: Turn, claim: ItemClaim, event: events.ItemEnded) -> TurnResult:
        """Record the turn's outcome in Postgres and return the result for Temporal."""
        end = turn_end(turn, event, is_draining=self._active_items.is_draining, jitter=self._jitter)
        self._on_turn_end(turn, claim, end, self._wall())
        if end is None:
            return TurnResult(FINISHED)
        if event.outcome.ending is Ending.FAILED:
            # Its process may have died before it claimed the item; without a claim nothing is recorded.
            await self._ask(partial(self._database.claim, claim.thread_id, claim.claim, self._machine))
        self._writer.write(claim, end.event, round(self._wall(), 3))
        await self._until_written(asyncio.wrap_future(self._writer.end(claim, end.state, end.outcome)))
        return end.result

    async def _until_written(self, done: "asyncio.Future[bool]") -> None:
        """Wait until Postgres has the record; while draining, at most HAND_OVER_TIMEOUT, and report the turn as drained: without a
        result, Temporal would count an attempt. A drained turn needs no record; the next one sees whether the item has finished."""
        waited = 0.0
        while not (await asyncio.wait([done], timeout=RETRY_INTERVAL))[0]:
            waited += RETRY_INTERVAL if self._active_items.is_draining else 0.0
            if waited >= HAND_OVER_TIMEOUT:
                raise _PostgresUnavailable
        done.result()


class _PostgresUnavailable(Exception):
    """Postgres is unreachable and the worker is draining, so it cannot wait any longer."""


def _is_cancel_requested() -> bool:
    details = activity.cancellation_details()
    return details is not None and details.cancel_requested


async def _heartbeat(interval: float) -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(interval)
