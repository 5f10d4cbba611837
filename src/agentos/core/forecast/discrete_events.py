"""A run among imagined workers, on a clock that jumps from one happening to the next."""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from agentos.core.protocol import events
from agentos.core.protocol.commands import Command, StepResult
from agentos.core.scheduling.scheduler import Scheduler

Decide = Callable[[float], StepResult]
Seen = Command | events.Event


@dataclass(frozen=True, slots=True)
class ScheduledEvent:
    """An event that an imagined worker will tell."""

    at: float
    event: events.WorkerEvent | events.EngineEvent


class SimulatedWorkers(Protocol):
    """Imagined workers, and the models they ask."""

    def execute(self, command: Command, now: float) -> list[ScheduledEvent]:
        """What comes of a command, now or later."""
        ...


class Deadlock(Exception):
    """Nothing will ever happen, and the run is not over."""


class EventSimulator:
    """Between happenings nothing is due, so no time is spent on waiting.

    When a worker ends, whatever else it was going to do does not happen.
    """

    def __init__(
        self,
        run: Scheduler,
        crew: SimulatedWorkers,
        now: float,
        watch: Callable[[Seen, float], None] = lambda seen, at: None,
    ) -> None:
        self.scheduler = run
        self.now = now
        self._workers = crew
        self._watch = watch
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, str, int, Decide]] = []
        self._alive: dict[str, int] = {}

    def begin(self) -> None:
        self._decide(self.scheduler.begin)

    def plan(self, at: float, decide: Decide) -> None:
        """Something from outside: a signal, an edit of the keys."""
        self._push(at, "", decide)

    def step(self) -> None:
        """To the next happening or deadline, whichever comes first."""
        due = self.scheduler.deadline(self.now)
        if self._events and (due is None or self._events[0][0] <= due):
            at, _, item, life, decide = heapq.heappop(self._events)
            self.now = max(self.now, at)
            if life == self._alive.get(item, 0):
                self._decide(decide)
        elif due is not None:
            self.now = max(self.now, due)
            self._decide(self.scheduler.wake)
        else:
            raise Deadlock(f"nothing is left to happen at {self.now:g} s")

    def _handle(self, event: events.WorkerEvent | events.EngineEvent, now: float) -> StepResult:
        if isinstance(event, events.WorkerExited | events.WorkerStartFailed):
            self._alive[event.item] = self._alive.get(event.item, 0) + 1
        self._watch(event, now)
        return self.scheduler.handle(event, now)

    def _decide(self, decide: Decide) -> None:
        """As the coordinator does: what is told comes before what is done."""
        decision = decide(self.now)
        self.scheduler.lease_manager.drain_notes()
        for news in decision.news:
            self._watch(news, self.now)
        for command in decision.commands:
            self._watch(command, self.now)
            for happening in self._workers.execute(command, self.now):
                self._imagine(happening)

    def _imagine(self, happening: ScheduledEvent) -> None:
        event = happening.event
        self._push(happening.at, event.item, lambda now: self._handle(event, now))

    def _push(self, at: float, item: str, decide: Decide) -> None:
        heapq.heappush(self._events, (at, next(self._numbers), item, self._alive.get(item, 0), decide))
