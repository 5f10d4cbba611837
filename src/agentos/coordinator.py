"""The loop: receive, let the run decide, obey, tell."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from agentos.core import events
from agentos.core.credentials import Credential
from agentos.core.neighbours import Note
from agentos.core.ports import Engine, Listener, Neighbours
from agentos.core.run import Decision, Run

LONGEST_WAIT = 1.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Clock:
    """Durations by the first, what people see by the second."""

    monotonic: Callable[[], float]
    wall: Callable[[], float]


CredentialNews = list[Credential] | events.CredentialsRejected | None


@dataclass(frozen=True, slots=True)
class Outside:
    """What reaches a run from outside: signals, edits of the credentials file, people's decisions.

    `decisions` is given the items that are parked, and gives those that may go on.
    """

    signals: list[str]
    credentials: Callable[[], CredentialNews]
    decisions: Callable[[list[str]], list[events.ItemDecided]] = lambda parked: []


class Sharer(Protocol):
    """Whoever owns a pool, as its neighbours see it."""

    def learn(self, notes: list[Note]) -> None: ...

    def neighbours(self) -> set[str]: ...

    def take_notes(self) -> list[Note]: ...


def in_turn(owner: Sharer, neighbours: Neighbours, decide: Callable[[], T]) -> T:
    """Keys are given out in turns: what the others did is known before, what we do is told within."""
    with neighbours.turn() as notes:
        owner.learn([*notes, *neighbours.gone(owner.neighbours())])
        decision = decide()
        neighbours.leave(owner.take_notes())
    return decision


class Coordinator:
    """The hands of one run: its only thread that touches engine and listeners."""

    def __init__(
        self, run: Run, engine: Engine, listeners: Sequence[Listener], clock: Clock, neighbours: Neighbours
    ) -> None:
        self._run = run
        self._engine = engine
        self._listeners = listeners
        self._clock = clock
        self._neighbours = neighbours

    def conduct(self, started: events.RunStarted, outside: Outside) -> int:
        """Until every item has ended; gives the exit code."""
        self._tell(started)
        self._look_outside(outside)
        if not self._run.over:
            self._decide(self._run.begin)
        while not self._run.over:
            for event in self._engine.receive(self._patience()):
                self._hear(event)
            self._look_outside(outside)
            self._decide(self._run.wake)
        return self._run.exit_code()

    def _patience(self) -> float:
        """Every wait has a deadline: the run's next one, and never long, so that edits are noticed."""
        now = self._clock.monotonic()
        due = self._run.deadline(now)
        return LONGEST_WAIT if due is None else min(LONGEST_WAIT, max(0.0, due - now))

    def _look_outside(self, outside: Outside) -> None:
        while outside.signals:
            self._hear(events.StopRequested(outside.signals.pop(0)))
        match outside.credentials():
            case None:
                pass
            case events.CredentialsRejected() as rejected:
                self._tell(rejected)
            case credentials:
                self._decide(lambda now: self._run.change_credentials(credentials, now))

        for decided in outside.decisions(self._run.parked()):
            self._hear(decided)

    def _hear(self, event: events.Event) -> None:
        if not isinstance(event, events.StopRequested):
            self._tell(event)
        self._decide(lambda now: self._run.hear(event, now))

    def _decide(self, decide: Callable[[float], Decision]) -> None:
        self._apply(in_turn(self._run, self._neighbours, lambda: decide(self._clock.monotonic())))

    def _apply(self, decision: Decision) -> None:
        """News first: what is started or granted is written down before it happens."""
        for news in decision.news:
            self._tell(news)
        for command in decision.commands:
            self._engine.obey(command)

    def _tell(self, event: events.Event) -> None:
        at = self._clock.wall()
        for listener in self._listeners:
            listener.hear(event, at)
