"""Discrete-event simulation of a run: a virtual clock that jumps from one event to the next."""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from agentos.core.forecast.history import ItemTrace
from agentos.core.protocol import events
from agentos.core.protocol.commands import (
    Command,
    FreezeWorker,
    GrantLease,
    KillWorker,
    StartWorker,
    StepResult,
    StopWorker,
    ThawWorker,
)
from agentos.core.protocol.results import Ending, Outcome, Verdict, failed
from agentos.core.scheduling.scheduler import Scheduler

Action = Callable[[float], StepResult]
"""A step of the scheduler, called with the simulated time."""
Observed = Command | events.Event
APPROVED = Outcome(Ending.FINISHED, Verdict.APPROVED, 1)


@dataclass(frozen=True, slots=True)
class ScheduledEvent:
    """An event that a simulated worker will send at a given time."""

    at: float
    event: events.WorkerEvent | events.EngineEvent


class SimulatedWorkers(Protocol):
    """Stands in for the engine, its workers and the models they call."""

    def execute(self, command: Command, now: float) -> list[ScheduledEvent]:
        """Return the events that follow from the command, now or later."""
        ...


class Deadlock(Exception):
    """The run has not ended, but no event or deadline is left."""


class EventSimulator:
    """Runs the real scheduler against simulated workers on a virtual clock.

    Each step moves the clock to the next event or deadline, so simulated waiting takes no real time. Once a worker
    has exited, its remaining events are dropped. `observe` is called with every event and command.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        workers: SimulatedWorkers,
        now: float,
        observe: Callable[[Observed, float], None] = lambda observed, at: None,
    ) -> None:
        self.scheduler = scheduler
        self.now = now
        self._workers = workers
        self._observe = observe
        self._sequence = itertools.count()
        self._events: list[tuple[float, int, str, int, Action]] = []
        self._exits: dict[str, int] = {}

    def begin(self) -> None:
        self._perform(self.scheduler.begin)

    def plan(self, at: float, action: Action) -> None:
        """Schedule an external action, such as a signal or a change of the keys."""
        self._push(at, "", action)

    def step(self) -> None:
        """Advance to the next event or deadline, whichever comes first."""
        deadline = self.scheduler.deadline(self.now)
        if self._events and (deadline is None or self._events[0][0] <= deadline):
            at, _, item, exits, action = heapq.heappop(self._events)
            self.now = max(self.now, at)
            if exits == self._exits.get(item, 0):
                self._perform(action)
        elif deadline is not None:
            self.now = max(self.now, deadline)
            self._perform(self.scheduler.wake)
        else:
            raise Deadlock(f"no event or deadline is left at {self.now:g} s")

    def _perform(self, action: Action) -> None:
        """Publish the events of the step before executing its commands, as the event loop does."""
        result = action(self.now)
        self.scheduler.lease_manager.drain_notes()
        for event in result.events:
            self._observe(event, self.now)
        for command in result.commands:
            self._observe(command, self.now)
            for scheduled in self._workers.execute(command, self.now):
                self._schedule(scheduled)

    def _schedule(self, scheduled: ScheduledEvent) -> None:
        event = scheduled.event
        self._push(scheduled.at, event.item, lambda now: self._handle(event, now))

    def _handle(self, event: events.WorkerEvent | events.EngineEvent, now: float) -> StepResult:
        if isinstance(event, events.WorkerExited | events.WorkerStartFailed):
            self._exits[event.item] = self._exits.get(event.item, 0) + 1
        self._observe(event, now)
        return self.scheduler.handle(event, now)

    def _push(self, at: float, item: str, action: Action) -> None:
        heapq.heappush(self._events, (at, next(self._sequence), item, self._exits.get(item, 0), action))


class ReplayWorkers:
    """Workers that replay one trace per item: the same calls, durations and token counts.

    The first worker starts after `warm_up` seconds, as the first worker of a real run does.
    """

    def __init__(self, traces: dict[str, ItemTrace], warm_up: float) -> None:
        self._traces = traces
        self._warm_up = warm_up
        self._warm_at: float | None = None
        self._calls_done: dict[str, int] = {}

    def execute(self, command: Command, now: float) -> list[ScheduledEvent]:
        match command:
            case StartWorker():
                return self._start(command.item, now)
            case GrantLease():
                return self._call(command, now)
            case StopWorker():
                return self._end(command.item, now, Outcome(Ending.INTERRUPTED))
            case KillWorker():
                return [ScheduledEvent(now, events.WorkerExited(command.item, "killed", clean=False))]
            case FreezeWorker() | ThawWorker():
                return []

    def _start(self, item: str, now: float) -> list[ScheduledEvent]:
        self._warm_at = now + self._warm_up if self._warm_at is None else self._warm_at
        started_at = max(now, self._warm_at) + self._traces[item].start
        self._calls_done[item] = 0
        return [ScheduledEvent(started_at, events.WorkerStarted(item, 1)), *self._continue(item, started_at)]

    def _call(self, grant: GrantLease, now: float) -> list[ScheduledEvent]:
        number = self._calls_done[grant.item]
        call = self._traces[grant.item].calls[number]
        self._calls_done[grant.item] = number + 1
        end = now + call.duration
        model = grant.model or ""
        released = events.LeaseReleased(grant.item, grant.lease, call.duration, call.usage, model=model)
        return [ScheduledEvent(end, released), *self._continue(grant.item, end)]

    def _continue(self, item: str, now: float) -> list[ScheduledEvent]:
        """Schedule the item's next call, or its end after the last one."""
        trace, number = self._traces[item], self._calls_done[item]
        if number == len(trace.calls):
            outcome = APPROVED if trace.nodes else failed("Invalid spec format")
            return self._end(item, now + trace.after, outcome)
        call = trace.calls[number]
        request = replace(call.request, item=item, call=f"call-{number}")
        return [ScheduledEvent(now + call.work_before, request)]

    def _end(self, item: str, at: float, outcome: Outcome) -> list[ScheduledEvent]:
        return [
            ScheduledEvent(at, events.WorkerReported(item, outcome)),
            ScheduledEvent(at, events.WorkerExited(item, "exit status 0", clean=True)),
        ]
