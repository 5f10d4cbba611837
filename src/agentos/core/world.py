"""A run among imagined workers, on a clock that jumps from one happening to the next."""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from agentos.core import events
from agentos.core.commands import Command
from agentos.core.decision import Decision
from agentos.core.run import Run

Decide = Callable[[float], Decision]
Seen = Command | events.Event


@dataclass(frozen=True, slots=True)
class Happening:
    """An event that an imagined worker will tell."""

    at: float
    event: events.WorkerEvent | events.EngineEvent


class Crew(Protocol):
    """Imagined workers, and the models they ask."""

    def obey(self, command: Command, now: float) -> list[Happening]:
        """What comes of a command, now or later."""
        ...


class Stuck(Exception):
    """Nothing will ever happen, and the run is not over."""


class World:
    """Between happenings nothing is due, so no time is spent on waiting.

    When a worker ends, whatever else it was going to do does not happen.
    """

    def __init__(
        self, run: Run, crew: Crew, now: float, watch: Callable[[Seen, float], None] = lambda seen, at: None
    ) -> None:
        self.run = run
        self.now = now
        self._crew = crew
        self._watch = watch
        self._numbers = itertools.count()
        self._agenda: list[tuple[float, int, str, int, Decide]] = []
        self._lives: dict[str, int] = {}

    def begin(self) -> None:
        self._decide(self.run.begin)

    def plan(self, at: float, decide: Decide) -> None:
        """Something from outside: a signal, an edit of the keys."""
        self._push(at, "", decide)

    def step(self) -> None:
        """To the next happening or deadline, whichever comes first."""
        due = self.run.deadline(self.now)
        if self._agenda and (due is None or self._agenda[0][0] <= due):
            at, _, item, life, decide = heapq.heappop(self._agenda)
            self.now = max(self.now, at)
            if life == self._lives.get(item, 0):
                self._decide(decide)
        elif due is not None:
            self.now = max(self.now, due)
            self._decide(self.run.wake)
        else:
            raise Stuck(f"nothing is left to happen at {self.now:g} s")

    def _hear(self, event: events.WorkerEvent | events.EngineEvent, now: float) -> Decision:
        if isinstance(event, events.WorkerEnded | events.WorkerNotStarted):
            self._lives[event.item] = self._lives.get(event.item, 0) + 1
        self._watch(event, now)
        return self.run.hear(event, now)

    def _decide(self, decide: Decide) -> None:
        """As the coordinator does: what is told comes before what is done."""
        decision = decide(self.now)
        self.run.leasing.take_notes()
        for news in decision.news:
            self._watch(news, self.now)
        for command in decision.commands:
            self._watch(command, self.now)
            for happening in self._crew.obey(command, self.now):
                self._imagine(happening)

    def _imagine(self, happening: Happening) -> None:
        event = happening.event
        self._push(happening.at, event.item, lambda now: self._hear(event, now))

    def _push(self, at: float, item: str, decide: Decide) -> None:
        heapq.heappush(self._agenda, (at, next(self._numbers), item, self._lives.get(item, 0), decide))
