"""One machine of the imagined fleet: the product's poller, event loop and scheduler on the virtual clock."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from temporalio.activity import ActivityCancellationDetails
from temporalio.testing import ActivityEnvironment

from agentos.core.protocol import events
from agentos.core.protocol.ports import Clock
from agentos.core.quota.budget import Limits
from agentos.core.quota.credentials import Credential
from agentos.core.quota.pool import Pool
from agentos.core.scheduling.control import STOP_TIMEOUT
from agentos.core.scheduling.scheduler import Scheduler
from agentos.core.text.secrets import Secret
from agentos.fleet.active_items import ActiveItems, PreparedItem, forward_event
from agentos.fleet.machine import NEVER
from agentos.fleet.poller import DRAIN_TIMEOUT
from agentos.run.event_loop import EventLoop, ExternalInputs
from agentos.storage.peer_log import NoPeers

from .network import Machine
from .processes import SimulatedEngine
from .stores import SimulatedEventWriter
from .surroundings import ROLES, Surroundings
from .temporal import Attempt

WRITER_TIMEOUT = 2.0  # seconds
_INFO = ActivityEnvironment.default_info()


class SimulatedWorker:
    """`agentos worker`: starts with its process, ends with SIGTERM or when its machine dies."""

    def __init__(self, machine: Machine, surroundings: Surroundings) -> None:
        self.machine = machine
        self._around = surroundings
        self.is_draining = False
        self._activities: set[ActivityEnvironment] = set()
        self._active_items = ActiveItems()
        self._writer = SimulatedEventWriter(surroundings.postgres, machine)
        clock, work = asyncio.get_running_loop().time, surroundings.work
        self._clock = clock
        self._poller = surroundings.poller(
            self._active_items,
            cast(Any, self._writer),
            cast(Any, surroundings.database(surroundings.postgres, machine, surroundings.shared)),
            lambda loaded: PreparedItem("", ROLES, None, None),
            Path("/nonexistent"),
            machine.name,
            ["lld"],
            work.parallel,
            jitter=work.random.random,
            wall=clock,
            heartbeat_interval=work.heartbeat_interval,
        )
        self._engine = SimulatedEngine(machine, surroundings, self._active_items)
        self._active_items.wake = self._engine.wake
        credential = Credential(
            "gateway-gemini", "gemini", Secret("token"), "https://gateway", concurrency=work.parallel
        )
        limits = Limits(work.parallel, retries=0, max_wait=NEVER)
        scheduler = Scheduler((), Pool([credential]), limits, work.random.random, clock())
        scheduler.keep_open()
        self._signals: list[str] = []
        self._loop = VirtualEventLoop(scheduler, self._engine, [self], Clock(clock, clock), NoPeers())
        machine.process.spawn(self._run())

    def sigterm(self) -> None:
        """As the signal handler does."""
        self.machine.process.call_later(0.0, self._arrive, "SIGTERM")

    def _arrive(self, signal: str) -> None:
        self._signals.append(signal)
        self._engine.wake()

    async def _run(self) -> None:
        for _ in range(self._around.work.parallel):
            self._around.temporal.poll(self)
        inputs = ExternalInputs(self._signals, membership=self._active_items.take_membership_changes)
        await self._loop.run_virtually(inputs)
        async with _optional_timeout(DRAIN_TIMEOUT):
            while self._activities:  # noqa: ASYNC110 - as the poller does
                await asyncio.sleep(0.05)
        async with _optional_timeout(WRITER_TIMEOUT):
            while not self._writer.is_idle:  # noqa: ASYNC110 - as the writer does
                await asyncio.sleep(0.05)
        since = self._clock() - DRAIN_TIMEOUT - WRITER_TIMEOUT - STOP_TIMEOUT
        is_excused = max(self._around.postgres.away_until, self._around.temporal.away_until) >= since
        self.machine.leave(in_trouble=is_excused or self.machine.in_trouble_since(since, "postgres"))

    # The listener of its run, as `FleetWorker` is.

    def on_event(self, event: events.Event, at: float) -> None:
        if isinstance(event, events.ShutdownStarted):
            self._poller.drain()
            self.is_draining = True
            self.machine.process.call_later(DRAIN_TIMEOUT, self._cancel_activities)
        forward_event(event, at, self._active_items, cast(Any, self._writer))

    def close(self) -> None:
        pass

    # Temporal's SDK.

    @property
    def is_polling(self) -> bool:
        """A server notices only after a while that whoever polls has fallen silent."""
        machine = self.machine
        is_silent = machine.process.is_frozen or machine.is_cut_from("temporal")
        return (
            machine.process.is_alive
            and not self.is_draining
            and (not is_silent or self._clock() < machine.silent_since + 2.0)
        )

    @property
    def is_gone(self) -> bool:
        return self.is_draining or not self.machine.process.is_alive

    def start(self, attempt: Attempt) -> None:
        self.machine.process.spawn(self._run_activity(attempt))

    async def _run_activity(self, attempt: Attempt) -> None:
        environment = ActivityEnvironment()
        environment.info = replace(_INFO, attempt=attempt.number)
        environment.on_heartbeat = lambda *_: self._heartbeat(attempt, environment)
        self._activities.add(environment)
        result, error = None, ""
        try:
            result = await environment.run(self._poller.run_item, attempt.turn)
        except asyncio.CancelledError:
            error = "cancelled"
        except Exception as found:
            error = f"{type(found).__name__}: {found}"
        await self._around.temporal.report(attempt, result, error)
        self._activities.discard(environment)
        if not self.is_draining:
            self._around.temporal.poll(self)

    def _heartbeat(self, attempt: Attempt, environment: ActivityEnvironment) -> None:
        if details := self._around.temporal.heartbeat(attempt):
            environment.cancel(details)

    def _cancel_activities(self) -> None:
        for environment in list(self._activities):
            environment.cancel(ActivityCancellationDetails(worker_shutdown=True))


class _optional_timeout:  # noqa: N801 - reads as asyncio.timeout
    """Ends the block after so many seconds, without an error."""

    def __init__(self, seconds: float) -> None:
        self._timeout = asyncio.timeout(seconds)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, *error: Any) -> bool:
        try:
            await self._timeout.__aexit__(*error)
        except TimeoutError:
            return True
        return False


class VirtualEventLoop(EventLoop):
    """The product's event loop, waiting on the virtual clock."""

    async def run_virtually(self, inputs: ExternalInputs) -> int:
        engine = cast(SimulatedEngine, self._engine)
        self._scheduler.choose_workers(self._clock.monotonic())
        self._decide(self._scheduler.begin)
        while not self._scheduler.over:
            now = self._clock.monotonic()
            deadline = self._scheduler.deadline(now)
            await engine.arrive(None if deadline is None else max(0.0, deadline - now))
            self._handle(engine.receive(0.0), inputs)
            self._poll_external(inputs)
        return self._scheduler.exit_code()
