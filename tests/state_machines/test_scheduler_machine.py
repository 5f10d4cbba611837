"""State machine test of the scheduler: random runs with workers that call, fail, crash and hang."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentos.core.constants import AUTO_PARALLEL, MAX_PARALLEL
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
from agentos.core.protocol.results import Ending, Outcome, Verdict, failed, failed_transient
from agentos.core.quota.budget import Limits
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.core.scheduling.auto_workers import MachineLoad
from agentos.core.scheduling.scheduler import Scheduler
from tests.core.builders import keys, steady

ENOUGH_STEPS = 2000
WorkerFilter = Callable[["FakeWorker"], object]

REFUSALS = (
    Refusal(RefusalKind.RATE_LIMITED, "429", 2.0),
    Refusal(RefusalKind.RATE_LIMITED, "429", 0.0),
    Refusal(RefusalKind.RATE_LIMITED, "429"),
    Refusal(RefusalKind.DAY_EXHAUSTED, "429 PerDay", 5.0, 30000.0),
    Refusal(RefusalKind.PROVIDER_ERROR, "503"),
    Refusal(RefusalKind.PROVIDER_ERROR, "no answer"),
    Refusal(RefusalKind.KEY_REJECTED, "401 unauthorised"),
)
APPROVED = Outcome(Ending.FINISHED, Verdict.APPROVED, 1)
OUTCOMES = (
    APPROVED,
    Outcome(Ending.FINISHED, Verdict.NEEDS_REVISION, 5),
    Outcome(Ending.PARKED),
    Outcome(Ending.HELD_BY_OTHER_RUN),
    failed("Invalid spec format"),
    failed_transient("OSError: no space left"),
)

rarely = st.integers(0, 3).map(lambda drawn: drawn == 3)


@dataclass(slots=True)
class FakeWorker:
    """A worker as the engine knows it. `call` is the call it requested a lease for, `lease` the lease it holds."""

    item: str
    started_at: float
    starting: bool = True
    call: str = ""
    lease: str = ""
    reported: bool = False
    stopping: bool = False
    killed: bool = False
    frozen: bool = False

    @property
    def idle(self) -> bool:
        return not (self.call or self.lease or self.reported or self.killed)


class SchedulerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.limits = Limits()
        self.items: tuple[str, ...] = ()
        self.keys = 1
        self.alive: dict[str, FakeWorker] = {}
        self.ended: dict[str, Outcome] = {}
        self.to_blame: set[str] = set()
        self.calls = 0
        self.is_stopping = False
        self.paused = False
        self.worker_count = 1
        self.allowed: dict[str, int] = {}
        self.slots_left = 1
        self.runs_ended = 0
        self.pool = Pool(keys(1))
        self.run = Scheduler((), self.pool, self.limits, steady, self.now)

    @initialize(
        count=st.integers(1, 5),
        parallel=st.integers(AUTO_PARALLEL, 3),
        key_count=st.integers(1, 3),
        retries=st.integers(0, 2),
        max_wait=st.sampled_from((10.0, 3600.0)),
    )
    def begin(self, count: int, parallel: int, key_count: int, retries: int, max_wait: float) -> None:
        self.items = tuple(f"LLD-{number}" for number in range(1, count + 1))
        self.limits, self.keys = Limits(parallel, retries, 100.0, max_wait), key_count
        self.allowed = dict.fromkeys(self.items, retries + 1)
        self.pool = Pool(keys(key_count))
        self.run = Scheduler(self.items, self.pool, self.limits, steady, self.now)
        self.worker_count = self.run.choose_workers(self.now)
        assert self.worker_count == parallel or (not parallel and 1 <= self.worker_count <= key_count)
        self._apply(self.run.begin(self.now))

    # Rules: what workers do.

    @precondition(lambda self: self.alive)
    @rule(answers=st.lists(st.none() | st.sampled_from(REFUSALS[:6]), min_size=1, max_size=6))
    def make_calls(self, answers: list[Refusal | None]) -> None:
        """The usual behaviour: request a lease, call, release it, and request the next one."""
        for answer in answers:
            for worker in list(self.alive.values()):
                if worker.lease and not worker.killed:
                    self._release_lease(worker, answer)
                if worker.idle and self.alive.get(worker.item) is worker:
                    self._request_lease(worker)
            if not self.run.over:
                self._advance_to_deadline()

    @precondition(lambda self: self._any_worker(lambda worker: worker.idle))
    @rule(data=st.data())
    def request_a_lease(self, data: st.DataObject) -> None:
        self._request_lease(self._choose(data, lambda worker: worker.idle))

    @precondition(lambda self: self._any_worker(lambda worker: worker.lease))
    @rule(data=st.data())
    def answer_a_call(self, data: st.DataObject) -> None:
        self._release_lease(self._choose(data, lambda worker: worker.lease), None)

    @precondition(lambda self: self._any_worker(lambda worker: worker.lease))
    @rule(data=st.data(), refusal=st.sampled_from(REFUSALS))
    def refuse_a_call(self, data: st.DataObject, refusal: Refusal) -> None:
        worker = self._choose(data, lambda worker: worker.lease)
        self._release_lease(worker, refusal)
        if worker.idle and worker.item in self.alive:
            self._request_lease(worker)

    @precondition(lambda self: self._any_worker(lambda worker: worker.lease))
    @rule(data=st.data(), times=st.integers(2, 7))
    def fail_for_a_while(self, data: st.DataObject, times: int) -> None:
        """A provider that keeps failing, and a worker that retries."""
        worker = self._choose(data, lambda worker: worker.lease)
        for _ in range(times):
            if self.alive.get(worker.item) is not worker or worker.killed or not worker.lease:
                break
            self._release_lease(worker, Refusal(RefusalKind.PROVIDER_ERROR, "503"))
            self._request_lease(worker)
            while self._waits(worker) and not self.run.over and not self.paused:
                self._advance_to_deadline()

    @precondition(lambda self: self._any_worker(lambda worker: worker.idle))
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES), sure=rarely)
    def report(self, data: st.DataObject, outcome: Outcome, sure: bool) -> None:
        if sure:
            self._report(self._choose(data, lambda worker: worker.idle), outcome)

    @precondition(lambda self: self._any_worker(lambda worker: worker.reported or worker.killed))
    @rule(data=st.data())
    def end_as_expected(self, data: st.DataObject) -> None:
        self._end(self._choose(data, lambda worker: worker.reported or worker.killed))

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), sure=rarely)
    def die(self, data: st.DataObject, sure: bool) -> None:
        if sure:
            worker = self._choose(data, lambda worker: True)
            self.to_blame.add(worker.item)
            self._end(worker)

    @precondition(lambda self: len(self.alive) > 1)
    @rule(deaths=st.lists(rarely, min_size=3, max_size=3))
    def receive_many_events_at_once(self, deaths: list[bool]) -> None:
        """Every worker sent an event, and some have crashed, before the scheduler handles any of it."""
        received: list[events.Event] = []
        for worker, dies in zip(list(self.alive.values()), deaths, strict=False):
            if worker.lease and not worker.killed:
                lease, worker.lease = worker.lease, ""
                received.append(events.LeaseReleased(worker.item, lease, 1.0))
            if worker.idle:
                received.append(self._lease_request(worker))
            if dies:
                self.to_blame.add(worker.item)
                del self.alive[worker.item]
                received.append(events.WorkerExited(worker.item, "signal 9", clean=False))
        self._handle(*received)

    @precondition(lambda self: self._any_worker(lambda worker: worker.starting))
    @rule(data=st.data())
    def fail_to_start(self, data: st.DataObject) -> None:
        self._fail_to_start(self._choose(data, lambda worker: worker.starting))

    @precondition(lambda self: not self.run.over)
    @rule(times=st.sampled_from((1, 3, 30)), sure=rarely)
    def let_every_start_fail(self, times: int, sure: bool) -> None:
        """The machine cannot start processes for a while."""
        for _ in range(times if sure else 0):
            for worker in [worker for worker in self.alive.values() if worker.starting]:
                self._fail_to_start(worker)
            if not self.run.over:
                self._advance_to_deadline()

    @precondition(lambda self: self._any_worker(lambda worker: worker.starting))
    @rule(data=st.data())
    def worker_starts(self, data: st.DataObject) -> None:
        worker = self._choose(data, lambda worker: worker.starting)
        worker.starting = False
        self._handle(events.WorkerStarted(worker.item, 4711))

    @precondition(lambda self: self._any_worker(lambda worker: worker.idle))
    @rule(data=st.data())
    def begin_a_node(self, data: st.DataObject) -> None:
        worker = self._choose(data, lambda worker: worker.idle)
        worker.starting = False
        self._handle(events.NodeStarted(worker.item, "N1_design", 1))

    # Rules: external events.

    @precondition(lambda self: not self.run.over)
    @rule(signal=st.sampled_from(("SIGINT", "SIGTERM", "SIGHUP")), sure=st.integers(0, 19))
    def signal(self, signal: str, sure: int) -> None:
        if sure == 7:
            self._handle(events.StopRequested(signal))

    @precondition(lambda self: not self.run.over)
    @rule(now=st.booleans())
    def pause(self, now: bool) -> None:
        self._handle(events.PauseRequested(now))

    @precondition(lambda self: not self.run.over)
    @rule()
    def resume(self) -> None:
        self._handle(events.ResumeRequested())

    @precondition(lambda self: not self.run.over)
    @rule(number=st.integers(1, 5))
    def request_a_retry(self, number: int) -> None:
        self._handle(events.RetryRequested(f"LLD-{number}"))

    @precondition(lambda self: not self.run.over)
    @precondition(lambda self: not self.run.over)
    @rule(busy=st.none() | st.floats(0.0, 2.0), free=st.none() | st.integers(0, 10**9))
    def load_the_machine(self, busy: float | None, free: int | None) -> None:
        self.run.set_machine_load(MachineLoad(2, busy, free))

    @rule(workers=st.integers(-1, 4))
    def change_the_number_of_workers(self, workers: int) -> None:
        self._handle(events.WorkerCountRequested(workers))

    @precondition(lambda self: not self.run.over)
    @rule(seconds=st.floats(0.1, 500.0))
    def suspend_and_continue(self, seconds: float) -> None:
        """Ctrl-Z, and fg after a while: the time in between counts towards no timeout."""
        self._reap_killed()
        if self.run.over:
            return
        self._handle(events.RunSuspended())
        assert all(worker.frozen for worker in self.alive.values())
        self.now += seconds
        for worker in self.alive.values():
            worker.started_at += seconds
        self._handle(events.RunContinued(seconds))
        assert not any(worker.frozen for worker in self.alive.values())

    @precondition(lambda self: not self.run.over)
    @rule(count=st.integers(1, 3))
    def edit_the_credentials(self, count: int) -> None:
        self.keys = count
        self._apply(self.run.change_credentials(keys(count), self.now))

    @rule(seconds=st.floats(0.01, 50.0))
    def pass_time(self, seconds: float) -> None:
        """At most to the deadline: the event loop never sleeps longer."""
        self._reap_killed()
        due = self.run.deadline(self.now)
        self.now = min(self.now + seconds, due if due is not None else self.now + seconds)
        self._apply(self.run.wake(self.now))

    @precondition(lambda self: not self.run.over)
    @rule()
    def advance_to_the_deadline(self) -> None:
        self._advance_to_deadline()

    # Invariants.

    @invariant()
    def only_live_workers_hold_leases_or_wait_for_them(self) -> None:
        assert self.pool.held() == sum(bool(worker.lease) for worker in self.alive.values())
        assert all(request.holder in self.alive for request in self.pool.waiting(math.inf))

    @invariant()
    def it_is_over_when_every_item_has_ended_and_not_before(self) -> None:
        over = bool(self.items) and set(self.ended) == set(self.items)
        if self.items:
            assert self.run.over is over
            assert self.runs_ended == over

    @invariant()
    def nothing_is_due_before_the_deadline(self) -> None:
        if self.run.over or not self.items:
            return
        due = self.run.deadline(self.now)
        assert due is not None and due > self.now, "a deadline that has passed makes a busy loop"
        for moment in (self.now, (self.now + due) / 2, max(self.now, due - 0.001)):
            # Deadlines that differ only by rounding are treated as one.
            if moment < due - 1e-6:
                early = copy.deepcopy(self.run).wake(moment)
                assert not early.commands and not early.events, "it was due before the deadline"

    def teardown(self) -> None:
        """Once workers behave, the run ends, whatever state it is in."""
        steps = 0
        if self.paused and not self.run.over:
            self._handle(events.ResumeRequested())
        while self.items and not self.run.over:
            steps += 1
            assert steps < ENOUGH_STEPS, "the run does not end"
            if not self._finish_one_step():
                self._advance_to_deadline()
        assert set(self.ended) == set(self.items)
        assert self.runs_ended == bool(self.items)

    # The engine.

    def _finish_one_step(self) -> bool:
        """Let one worker make progress; returns whether one could."""
        for worker in list(self.alive.values()):
            if worker.killed or worker.reported:
                self._end(worker)
            elif worker.stopping:
                self._report(worker, Outcome(Ending.INTERRUPTED))
            elif worker.lease:
                self._release_lease(worker, None)
            elif worker.idle:
                self._report(worker, APPROVED)
            else:
                continue
            return True
        return False

    def _reap_killed(self) -> None:
        """Killed workers exit at once."""
        for worker in [worker for worker in self.alive.values() if worker.killed]:
            self._end(worker)

    def _advance_to_deadline(self) -> None:
        self._reap_killed()
        if self.run.over:
            return
        due = self.run.deadline(self.now)
        assert due is not None
        self.now = max(self.now, due)
        self._apply(self.run.wake(self.now))

    def _request_lease(self, worker: FakeWorker) -> None:
        self._handle(self._lease_request(worker))

    def _lease_request(self, worker: FakeWorker) -> events.LeaseRequested:
        self.calls += 1
        worker.starting, worker.call = False, f"call-{self.calls}"
        return events.LeaseRequested(worker.item, worker.call, ("gemini",))

    def _release_lease(self, worker: FakeWorker, refusal: Refusal | None) -> None:
        lease, worker.lease = worker.lease, ""
        self._handle(events.LeaseReleased(worker.item, lease, 1.0, refusal=refusal))

    def _report(self, worker: FakeWorker, outcome: Outcome) -> None:
        worker.starting, worker.reported = False, True
        if outcome.ending is Ending.FAILED:
            self.to_blame.add(worker.item)
        self._handle(events.WorkerReported(worker.item, outcome))

    def _fail_to_start(self, worker: FakeWorker) -> None:
        self.to_blame.add(worker.item)
        del self.alive[worker.item]
        self._handle(events.WorkerStartFailed(worker.item, "EAGAIN"))

    def _end(self, worker: FakeWorker) -> None:
        del self.alive[worker.item]
        self._handle(events.WorkerExited(worker.item, "signal 9", clean=False))

    def _handle(self, *received: events.Event) -> None:
        self._apply(self.run.handle_all(received, self.now))

    def _apply(self, step: StepResult) -> None:
        for event in step.events:
            self._record(event)
        for command in step.commands:
            self._execute(command)
        if any(isinstance(event, events.ShutdownStarted) for event in step.events) and not self.run.over:
            # The step after a limit has stopped the run ends the queued items.
            self._apply(self.run.wake(self.now))

    def _record(self, event: events.SchedulerEvent) -> None:
        match event:
            case events.ItemEnded():
                assert event.item not in self.ended, "an item ends once"
                assert event.attempts <= self.allowed[event.item]
                assert event.outcome.ending is not Ending.FAILED or self._may_fail(event.item)
                self.ended[event.item] = event.outcome
            case events.ItemStarted():
                assert 1 <= event.attempt <= self.allowed[event.item]
            case events.SlotRetired():
                self.slots_left = event.slots_left
            case events.ShutdownStarted():
                self.is_stopping = True
            case events.RunEnded():
                assert not self.alive
                self.runs_ended += 1
            case _:
                self._record_request(event)

    def _record_request(self, event: events.SchedulerEvent) -> None:
        match event:
            case events.ItemSuspended():
                self.allowed[event.item] += 1
            case events.ItemRequeued():
                ended = self.ended.pop(event.item)
                assert ended.ending in (Ending.FAILED, Ending.HELD_BY_OTHER_RUN)
                self.allowed[event.item] += self.limits.retries + 1
            case events.WorkerCountChanged():
                assert 1 <= event.workers <= MAX_PARALLEL and event.previous == self.worker_count
                assert event.workers != event.previous or not event.reason
                self.worker_count = event.workers
            case events.RunPaused():
                self.paused = True
            case events.RunResumed():
                self.paused = False
            case _:
                pass

    def _may_fail(self, item: str) -> bool:
        """An item fails for what it or its worker did, or with the last worker slot; never for quota."""
        return item in self.to_blame or self.slots_left == 0

    def _execute(self, command: Command) -> None:
        match command:
            case StartWorker():
                assert not self.is_stopping, "no worker is started after the shutdown began"
                assert not self.paused, "no worker is started while the run is paused"
                assert len(self.alive) < self.worker_count, "more workers than requested"
                assert command.item not in self.alive and command.item not in self.ended
                self.alive[command.item] = FakeWorker(command.item, self.now)
            case StopWorker():
                self.alive[command.item].stopping = True
            case KillWorker():
                worker = self.alive[command.item]
                late = self.now >= worker.started_at + self.limits.timeout - 1e-6
                told_to_stop = worker.stopping or self.is_stopping
                assert late or worker.reported or told_to_stop, "killed without a reason"
                self.to_blame.add(command.item)
                worker.killed = True
            case FreezeWorker():
                self.alive[command.item].frozen = True
            case ThawWorker():
                self.alive[command.item].frozen = False
            case GrantLease():
                assert not self.paused, "no call begins while the run is paused"
                worker = self.alive[command.item]
                assert worker.call == command.call and not worker.lease
                worker.call, worker.lease = "", command.lease

    def _waits(self, worker: FakeWorker) -> bool:
        return bool(worker.call) and self.alive.get(worker.item) is worker and not worker.killed

    def _any_worker(self, matches: WorkerFilter) -> bool:
        return any(matches(worker) for worker in self.alive.values())

    def _choose(self, data: st.DataObject, matches: WorkerFilter) -> FakeWorker:
        items = sorted(item for item, worker in self.alive.items() if matches(worker))
        return self.alive[data.draw(st.sampled_from(items))]


# No shrinking: it takes minutes, and forty steps can be read.
SchedulerMachine.TestCase.settings = settings(
    max_examples=10, stateful_step_count=40, deadline=None, phases=[Phase.reuse, Phase.generate]
)
TestSchedulerMachine = SchedulerMachine.TestCase


@pytest.mark.slow
class TestSchedulerMachineAtLength(SchedulerMachine.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(TestSchedulerMachine.settings, max_examples=40)
