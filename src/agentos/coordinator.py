"""The loop: receive, let the run decide, obey, tell."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentos.core import events
from agentos.core.commands import GrantLease
from agentos.core.credentials import Credential
from agentos.core.decision import Decision
from agentos.core.ports import Asked, Engine, Listener, Neighbours
from agentos.core.run import Run
from agentos.core.turns import in_turn

LONGEST_WAIT = 1.0


@dataclass(frozen=True, slots=True)
class Clock:
    """Durations by the first, what people see by the second."""

    monotonic: Callable[[], float]
    wall: Callable[[], float]


CredentialNews = list[Credential] | events.CredentialsRejected | None


@dataclass(frozen=True, slots=True)
class Outside:
    """What reaches a run from outside: signals, edits of the credentials file, decisions, requests.

    `decisions` is given the items that are parked, and gives those that may go on.
    """

    signals: list[str]
    credentials: Callable[[], CredentialNews]
    decisions: Callable[[list[str]], list[events.ItemDecided]] = lambda parked: []
    requests: Callable[[], Sequence[Asked]] = lambda: ()
    sleep: Callable[[], None] = lambda: None


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
        self._untold: list[GrantLease] = []

    def conduct(self, started: events.RunStarted, outside: Outside) -> int:
        """Until every item has ended; gives the exit code."""
        self._tell(started)
        self._look_outside(outside)
        if not self._run.over:
            self._decide(self._run.begin)
        while not self._run.over:
            self._hear(self._engine.receive(self._patience()))
            self._look_outside(outside)
        return self._run.exit_code()

    def _patience(self) -> float:
        """Every wait has a deadline: the run's next one, and never long, so that edits are noticed."""
        now = self._clock.monotonic()
        due = self._run.deadline(now)
        return LONGEST_WAIT if due is None else min(LONGEST_WAIT, max(0.0, due - now))

    def _look_outside(self, outside: Outside) -> None:
        while outside.signals:
            match outside.signals.pop(0):
                case "SIGTSTP":
                    self._sleep(outside.sleep)
                case name:
                    self._hear([events.StopRequested(name)])
        for asked in outside.requests():
            asked.answer(self._hear([asked.request]))
        match outside.credentials():
            case None:
                pass
            case events.CredentialsRejected() as rejected:
                self._tell(rejected)
            case credentials:
                self._decide(lambda now: self._run.change_credentials(credentials, now))
        if decided := outside.decisions(self._run.parked()):
            self._hear(decided)

    def _sleep(self, sleep: Callable[[], None]) -> None:
        """Ctrl-Z: workers stand still before we do, and go on after us."""
        self._hear([events.RunSuspended()])
        before = self._clock.monotonic()
        sleep()
        self._hear([events.RunContinued(self._clock.monotonic() - before)])

    def _hear(self, heard: Sequence[events.Event]) -> list[events.News]:
        """All that came at once is decided in one turn; by nothing heard, time has passed."""
        ended = {event.item for event in heard if isinstance(event, events.WorkerEnded)}
        self._untold = [grant for grant in self._untold if grant.item not in ended]
        for event in heard:
            # A request is not a fact yet; what comes of it is.
            if not isinstance(event, events.Request):
                self._tell(event)
        news = self._decide(lambda now: self._run.take(heard, now))
        rest = self._run.follow(self._clock.monotonic())
        self._apply(rest, told=False)
        return [*news, *rest.news]

    def _decide(self, decide: Callable[[float], Decision]) -> list[events.News]:
        decision, told = in_turn(self._run.leasing, self._neighbours, lambda: decide(self._clock.monotonic()))
        self._apply(decision, told)
        return decision.news

    def _apply(self, decision: Decision, told: bool) -> None:
        """News first: what is started or granted is written down before it happens."""
        for news in decision.news:
            self._tell(news)
        self._untold += [one for one in decision.commands if isinstance(one, GrantLease)]
        for command in decision.commands:
            if not isinstance(command, GrantLease):
                self._engine.obey(command)
        # A key that the other runs could not be told of is not given out.
        while told and self._untold:
            self._engine.obey(self._untold.pop(0))

    def _tell(self, event: events.Event) -> None:
        # What is heard is what is written down: a report made during the run is the one made after it.
        at = round(self._clock.wall(), 3)
        for listener in self._listeners:
            listener.hear(event, at)
