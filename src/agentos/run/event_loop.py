"""The loop: receive, let the run decide, obey, tell."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentos.core.protocol import events
from agentos.core.protocol.commands import GrantLease, StepResult
from agentos.core.protocol.ports import ControlRequest, Engine, Listener, PeerLog
from agentos.core.quota.credentials import Credential
from agentos.core.quota.shared_turn import with_shared_lock
from agentos.core.scheduling.scheduler import Scheduler

MAX_WAIT = 1.0


@dataclass(frozen=True, slots=True)
class Clock:
    """Durations by the first, what people see by the second."""

    monotonic: Callable[[], float]
    wall: Callable[[], float]


CredentialNews = list[Credential] | events.CredentialsRejected | None


@dataclass(frozen=True, slots=True)
class ExternalInputs:
    """What reaches a run from outside: signals, edits of the credentials file, decisions, requests.

    `decisions` is given the items that are parked, and gives those that may go on.
    """

    signals: list[str]
    credentials: Callable[[], CredentialNews]
    decisions: Callable[[list[str]], list[events.ItemDecided]] = lambda parked: []
    requests: Callable[[], Sequence[ControlRequest]] = lambda: ()
    sleep: Callable[[], None] = lambda: None


class EventLoop:
    """The hands of one run: its only thread that touches engine and listeners."""

    def __init__(
        self, run: Scheduler, engine: Engine, listeners: Sequence[Listener], clock: Clock, peers: PeerLog
    ) -> None:
        self._scheduler = run
        self._engine = engine
        self._listeners = listeners
        self._clock = clock
        self._peers = peers
        self._pending_grants: list[GrantLease] = []

    def run(self, started: events.RunStarted, outside: ExternalInputs) -> int:
        """Until every item has ended; gives the exit code."""
        self._publish(started)
        self._poll_external(outside)
        if not self._scheduler.over:
            self._decide(self._scheduler.begin)
        while not self._scheduler.over:
            self._handle(self._engine.receive(self._wait_seconds()))
            self._poll_external(outside)
        return self._scheduler.exit_code()

    def _wait_seconds(self) -> float:
        """Every wait has a deadline: the run's next one, and never long, so that edits are noticed."""
        now = self._clock.monotonic()
        due = self._scheduler.deadline(now)
        return MAX_WAIT if due is None else min(MAX_WAIT, max(0.0, due - now))

    def _poll_external(self, outside: ExternalInputs) -> None:
        while outside.signals:
            match outside.signals.pop(0):
                case "SIGTSTP":
                    self._sleep(outside.sleep)
                case name:
                    self._handle([events.StopRequested(name)])
        for asked in outside.requests():
            asked.reply(self._handle([asked.request]))
        match outside.credentials():
            case None:
                pass
            case events.CredentialsRejected() as rejected:
                self._publish(rejected)
            case credentials:
                self._decide(lambda now: self._scheduler.change_credentials(credentials, now))
        if decided := outside.decisions(self._scheduler.parked()):
            self._handle(decided)

    def _sleep(self, sleep: Callable[[], None]) -> None:
        """Ctrl-Z: workers stand still before we do, and go on after us."""
        self._handle([events.RunSuspended()])
        before = self._clock.monotonic()
        sleep()
        self._handle([events.RunContinued(self._clock.monotonic() - before)])

    def _handle(self, heard: Sequence[events.Event]) -> list[events.News]:
        """All that came at once is decided in one turn; by nothing heard, time has passed."""
        ended = {event.item for event in heard if isinstance(event, events.WorkerExited)}
        self._pending_grants = [grant for grant in self._pending_grants if grant.item not in ended]
        for event in heard:
            # A request is not a fact yet; what comes of it is.
            if not isinstance(event, events.Request):
                self._publish(event)
        news = self._decide(lambda now: self._scheduler.grant_phase(heard, now))
        rest = self._scheduler.follow_up(self._clock.monotonic())
        self._apply(rest, told=False)
        return [*news, *rest.news]

    def _decide(self, decide: Callable[[float], StepResult]) -> list[events.News]:
        decision, told = with_shared_lock(
            self._scheduler.lease_manager, self._peers, lambda: decide(self._clock.monotonic())
        )
        self._apply(decision, told)
        return decision.news

    def _apply(self, decision: StepResult, told: bool) -> None:
        """News first: what is started or granted is written down before it happens."""
        for news in decision.news:
            self._publish(news)
        self._pending_grants += [one for one in decision.commands if isinstance(one, GrantLease)]
        for command in decision.commands:
            if not isinstance(command, GrantLease):
                self._engine.execute(command)
        # A key that the other runs could not be told of is not given out.
        while told and self._pending_grants:
            self._engine.execute(self._pending_grants.pop(0))

    def _publish(self, event: events.Event) -> None:
        # What is heard is what is written down: a report made during the run is the one made after it.
        at = round(self._clock.wall(), 3)
        for listener in self._listeners:
            listener.on_event(event, at)
