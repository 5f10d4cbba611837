"""The event loop of a run: receive events, let the scheduler decide, publish its events, execute the commands."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agentos.core.protocol import events
from agentos.core.protocol.commands import GrantLease, StepResult
from agentos.core.protocol.ports import Clock, ControlRequest, Engine, Listener, PeerLog
from agentos.core.protocol.results import TakenItem
from agentos.core.quota.credentials import Credential
from agentos.core.quota.peer_state import with_shared_lock
from agentos.core.scheduling.auto_workers import MachineLoad
from agentos.core.scheduling.scheduler import Scheduler

MAX_POLL_INTERVAL = 1.0  # seconds; bounds how long an edited credentials file goes unnoticed
DECISION_POLL_INTERVAL = 1.0  # seconds
MACHINE_POLL_INTERVAL = 2.0  # seconds
OTHER_RUNS_POLL_INTERVAL = 5.0  # seconds


CredentialUpdate = list[Credential] | events.CredentialsRejected | None


@dataclass(frozen=True, slots=True)
class ExternalInputs:
    """Everything that reaches a run from outside its workers. None of these calls may block.

    signals: names of received signals; the loop removes each as it handles it.
    credentials: the new credentials if the file has changed, or why it was rejected.
    decisions: takes the ids of the parked items, returns those that a person has decided on.
    requests: requests that arrived on the control socket.
    suspend: stops this process (Ctrl-Z) and returns when it is continued.
    taken: takes the ids of the items about to start, returns those that another run holds or has ended.
    ended_elsewhere: takes the ids of all queued items, returns those that another run has ended.
    background: checks on background processes of the run.
    membership: fleet items that were assigned to this worker or withdrawn from it.
    machine: what the machine can spare.
    """

    signals: list[str]
    credentials: Callable[[], CredentialUpdate] = lambda: None
    decisions: Callable[[list[str]], list[events.ItemDecided]] = lambda parked: []
    requests: Callable[[], Sequence[ControlRequest]] = lambda: ()
    suspend: Callable[[], None] = lambda: None
    taken: Callable[[list[str]], list[TakenItem]] = lambda items: []
    ended_elsewhere: Callable[[list[str]], list[TakenItem]] = lambda items: []
    background: Callable[[], object] = lambda: None
    membership: Callable[[], list[events.ItemJoined | events.ItemWithdrawn]] = list
    machine: Callable[[], MachineLoad] = MachineLoad


class EventLoop:
    """Drives one scheduler. The only thread that touches the engine and the listeners."""

    def __init__(
        self,
        scheduler: Scheduler,
        engine: Engine,
        listeners: Sequence[Listener],
        clock: Clock,
        peers: PeerLog,
    ) -> None:
        self._scheduler = scheduler
        self._engine = engine
        self._listeners = listeners
        self._clock = clock
        self._peers = peers
        self._pending_grants: list[GrantLease] = []
        self._next_decision_poll = 0.0
        self._next_machine_poll = 0.0
        self._next_other_runs_poll = 0.0

    def run(self, started: events.RunStarted, inputs: ExternalInputs) -> int:
        """Loop until every item has ended; returns the exit code."""
        self._poll_machine(inputs)
        workers = self._scheduler.choose_workers(self._clock.monotonic())
        self._publish(replace(started, workers=workers))
        self._poll_external(inputs)
        if not self._scheduler.over:
            self._skip_taken(inputs)
            self._decide(self._scheduler.begin)
        while not self._scheduler.over:
            self._handle(self._engine.receive(self._wait_seconds()), inputs)
            self._poll_external(inputs)
        return self._scheduler.exit_code()

    def _wait_seconds(self) -> float:
        now = self._clock.monotonic()
        deadline = self._scheduler.deadline(now)
        return MAX_POLL_INTERVAL if deadline is None else min(MAX_POLL_INTERVAL, max(0.0, deadline - now))

    def _poll_external(self, inputs: ExternalInputs) -> None:
        while inputs.signals:
            match inputs.signals.pop(0):
                case "SIGTSTP":
                    self._suspend(inputs)
                case name:
                    self._handle([events.StopRequested(name)], inputs)
        for pending in inputs.requests():
            pending.reply(self._handle([pending.request], inputs))
        match inputs.credentials():
            case None:
                pass
            case events.CredentialsRejected() as rejected:
                self._publish(rejected)
            case credentials:
                self._skip_taken(inputs)
                self._decide(lambda now: self._scheduler.change_credentials(credentials, now))
        if changes := inputs.membership():
            self._handle(changes, inputs)
        self._poll_decisions(inputs)
        self._poll_machine(inputs)
        self._poll_other_runs(inputs)
        inputs.background()

    def _poll_machine(self, inputs: ExternalInputs) -> None:
        now = self._clock.monotonic()
        if now >= self._next_machine_poll:
            self._next_machine_poll = now + MACHINE_POLL_INTERVAL
            self._scheduler.set_machine_load(inputs.machine())

    def _poll_other_runs(self, inputs: ExternalInputs) -> None:
        """Skip what other runs have ended before its turn comes, so that the progress and the time left are right."""
        now = self._clock.monotonic()
        if now < self._next_other_runs_poll or self._scheduler.over or inputs.signals:
            return
        self._next_other_runs_poll = now + OTHER_RUNS_POLL_INTERVAL
        if taken := inputs.ended_elsewhere(self._scheduler.queued_items()):
            self._apply(self._scheduler.skip_taken(taken), may_grant=False)

    def _poll_decisions(self, inputs: ExternalInputs) -> None:
        """Poll by time, not after each event: a poll costs a stat per parked item, and there may be thousands of events."""
        now = self._clock.monotonic()
        # Always poll once more before the run ends: a late decision keeps it going.
        if now < self._next_decision_poll and not self._scheduler.over:
            return
        self._next_decision_poll = now + DECISION_POLL_INTERVAL
        if decided := inputs.decisions(self._scheduler.parked()):
            self._handle(decided, inputs)

    def _suspend(self, inputs: ExternalInputs) -> None:
        """Ctrl-Z: workers are frozen before this process stops, and thawed after it continues."""
        self._handle([events.RunSuspended()], inputs)
        before = self._clock.monotonic()
        inputs.suspend()
        self._handle([events.RunContinued(self._clock.monotonic() - before)], inputs)

    def _skip_taken(self, inputs: ExternalInputs) -> None:
        """Skip items that other runs have taken since the plan; each is checked right before its worker starts.

        A signal ends the check: a long backlog must not delay a shutdown.
        """
        while not inputs.signals:
            due = self._scheduler.next_items(self._clock.monotonic())
            taken = inputs.taken(due) if due else []
            if not taken:
                return
            self._apply(self._scheduler.skip_taken(taken), may_grant=False)

    def _handle(
        self, received: Sequence[events.Event], inputs: ExternalInputs
    ) -> list[events.SchedulerEvent]:
        """Handle everything received together as one step; in an empty step, the scheduler acts on the time alone."""
        exited = {event.item for event in received if isinstance(event, events.WorkerExited)}
        self._pending_grants = [grant for grant in self._pending_grants if grant.item not in exited]
        for event in received:
            # A request is not a fact; only its consequences are published.
            if not isinstance(event, events.Request):
                self._publish(event)
        granted = self._decide(lambda now: self._scheduler.grant_phase(received, now))
        self._skip_taken(inputs)
        follow_up = self._scheduler.follow_up(self._clock.monotonic())
        self._apply(follow_up, may_grant=False)
        return [*granted, *follow_up.events]

    def _decide(self, decide: Callable[[float], StepResult]) -> list[events.SchedulerEvent]:
        result, peers_notified = with_shared_lock(
            self._scheduler.lease_manager, self._peers, lambda: decide(self._clock.monotonic())
        )
        self._apply(result, may_grant=peers_notified)
        return result.events

    def _apply(self, result: StepResult, may_grant: bool) -> None:
        """Publish before executing, so that the journal records every start and grant before it happens."""
        for event in result.events:
            self._publish(event)
        for command in result.commands:
            if isinstance(command, GrantLease):
                self._pending_grants.append(command)
            else:
                self._engine.execute(command)
        # A lease that other runs have not been notified of is not granted yet.
        while may_grant and self._pending_grants:
            self._engine.execute(self._pending_grants.pop(0))

    def _publish(self, event: events.Event) -> None:
        # Rounded as in the journal, so that a report made during the run equals one made from the journal.
        at = round(self._clock.wall(), 3)
        for listener in self._listeners:
            listener.on_event(event, at)
