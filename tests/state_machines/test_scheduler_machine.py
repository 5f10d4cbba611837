"""Random lives of a run, with workers that do whatever workers do."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

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
from agentos.core.scheduling.scheduler import Scheduler
from tests.core.builders import keys, steady

ENOUGH_STEPS = 2000
Kind = Callable[["Life"], object]

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
    Outcome(Ending.ELSEWHERE),
    failed("Invalid spec format"),
    failed_transient("OSError: no space left"),
)

rarely = st.integers(0, 3).map(lambda drawn: drawn == 3)


@dataclass(slots=True)
class Life:
    """A worker as the engine knows it; `call` is what it waits for, `lease` what it calls with."""

    item: str
    began: float
    fresh: bool = True
    call: str = ""
    lease: str = ""
    reported: bool = False
    stopping: bool = False
    doomed: bool = False
    frozen: bool = False

    @property
    def idle(self) -> bool:
        return not (self.call or self.lease or self.reported or self.doomed)


class RunMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.limits = Limits()
        self.items: tuple[str, ...] = ()
        self.keys = 1
        self.lives: dict[str, Life] = {}
        self.ended: dict[str, Outcome] = {}
        self.guilty: set[str] = set()
        self.calls = 0
        self.stop_began = False
        self.paused = False
        self.workers = 1
        self.allowed: dict[str, int] = {}
        self.slots_left = 1
        self.runs_ended = 0
        self.pool = Pool(keys(1))
        self.run = Scheduler((), self.pool, self.limits, steady, self.now)

    @initialize(
        count=st.integers(1, 5),
        parallel=st.integers(1, 3),
        key_count=st.integers(1, 3),
        retries=st.integers(0, 2),
        max_wait=st.sampled_from((10.0, 3600.0)),
    )
    def begin(self, count: int, parallel: int, key_count: int, retries: int, max_wait: float) -> None:
        self.items = tuple(f"LLD-{number}" for number in range(1, count + 1))
        self.limits, self.keys = Limits(parallel, retries, 100.0, max_wait), key_count
        self.workers, self.allowed = parallel, dict.fromkeys(self.items, retries + 1)
        self.pool = Pool(keys(key_count))
        self.run = Scheduler(self.items, self.pool, self.limits, steady, self.now)
        self._obey(self.run.begin(self.now))

    # What workers do.

    @precondition(lambda self: self.lives)
    @rule(answers=st.lists(st.none() | st.sampled_from(REFUSALS[:6]), min_size=1, max_size=6))
    def go_on(self, answers: list[Refusal | None]) -> None:
        """What they mostly do: ask, call, and ask again."""
        for answer in answers:
            for life in list(self.lives.values()):
                if life.lease and not life.doomed:
                    self._return(life, answer)
                if life.idle and self.lives.get(life.item) is life:
                    self._want(life)
            if not self.run.over:
                self._jump()

    @precondition(lambda self: self._some(lambda life: life.idle))
    @rule(data=st.data())
    def want_a_lease(self, data: st.DataObject) -> None:
        self._want(self._choose(data, lambda life: life.idle))

    @precondition(lambda self: self._some(lambda life: life.lease))
    @rule(data=st.data())
    def answer_a_call(self, data: st.DataObject) -> None:
        self._return(self._choose(data, lambda life: life.lease), None)

    @precondition(lambda self: self._some(lambda life: life.lease))
    @rule(data=st.data(), refusal=st.sampled_from(REFUSALS))
    def refuse_a_call(self, data: st.DataObject, refusal: Refusal) -> None:
        life = self._choose(data, lambda life: life.lease)
        self._return(life, refusal)
        if life.idle and life.item in self.lives:
            self._want(life)

    @precondition(lambda self: self._some(lambda life: life.lease))
    @rule(data=st.data(), times=st.integers(2, 7))
    def fail_for_a_while(self, data: st.DataObject, times: int) -> None:
        """A provider in trouble, and a worker that tries again as told."""
        life = self._choose(data, lambda life: life.lease)
        for _ in range(times):
            if self.lives.get(life.item) is not life or life.doomed or not life.lease:
                break
            self._return(life, Refusal(RefusalKind.PROVIDER_ERROR, "503"))
            self._want(life)
            while self._waits(life) and not self.run.over and not self.paused:
                self._jump()

    @precondition(lambda self: self._some(lambda life: life.idle))
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES), sure=rarely)
    def report(self, data: st.DataObject, outcome: Outcome, sure: bool) -> None:
        if sure:
            self._report(self._choose(data, lambda life: life.idle), outcome)

    @precondition(lambda self: self._some(lambda life: life.reported or life.doomed))
    @rule(data=st.data())
    def end_as_expected(self, data: st.DataObject) -> None:
        self._end(self._choose(data, lambda life: life.reported or life.doomed))

    @precondition(lambda self: self.lives)
    @rule(data=st.data(), sure=rarely)
    def die(self, data: st.DataObject, sure: bool) -> None:
        if sure:
            life = self._choose(data, lambda life: True)
            self.guilty.add(life.item)
            self._end(life)

    @precondition(lambda self: len(self.lives) > 1)
    @rule(deaths=st.lists(rarely, min_size=3, max_size=3))
    def speak_at_once(self, deaths: list[bool]) -> None:
        """Everybody has said something, and some have died over it, when the coordinator looks."""
        heard: list[events.Event] = []
        for life, dies in zip(list(self.lives.values()), deaths, strict=False):
            if life.lease and not life.doomed:
                lease, life.lease = life.lease, ""
                heard.append(events.LeaseReleased(life.item, lease, 1.0))
            if life.idle:
                heard.append(self._wish(life))
            if dies:
                self.guilty.add(life.item)
                del self.lives[life.item]
                heard.append(events.WorkerExited(life.item, "signal 9", clean=False))
        self._hear(*heard)

    @precondition(lambda self: self._some(lambda life: life.fresh))
    @rule(data=st.data())
    def fail_to_start(self, data: st.DataObject) -> None:
        self._fail_to_start(self._choose(data, lambda life: life.fresh))

    @precondition(lambda self: not self.run.over)
    @rule(times=st.sampled_from((1, 3, 30)), sure=rarely)
    def let_every_start_fail(self, times: int, sure: bool) -> None:
        """A machine that is out of processes for a while."""
        for _ in range(times if sure else 0):
            for life in [life for life in self.lives.values() if life.fresh]:
                self._fail_to_start(life)
            if not self.run.over:
                self._jump()

    @precondition(lambda self: self._some(lambda life: life.fresh))
    @rule(data=st.data())
    def appear(self, data: st.DataObject) -> None:
        life = self._choose(data, lambda life: life.fresh)
        life.fresh = False
        self._hear(events.WorkerStarted(life.item, 4711))

    @precondition(lambda self: self._some(lambda life: life.idle))
    @rule(data=st.data())
    def begin_a_node(self, data: st.DataObject) -> None:
        life = self._choose(data, lambda life: life.idle)
        life.fresh = False
        self._hear(events.NodeStarted(life.item, "N1_design", 1))

    # What happens from outside.

    @precondition(lambda self: not self.run.over)
    @rule(signal=st.sampled_from(("SIGINT", "SIGTERM", "SIGHUP")), sure=st.integers(0, 19))
    def signal(self, signal: str, sure: int) -> None:
        if sure == 7:
            self._hear(events.StopRequested(signal))

    @precondition(lambda self: not self.run.over)
    @rule(now=st.booleans())
    def pause(self, now: bool) -> None:
        self._hear(events.PauseRequested(now))

    @precondition(lambda self: not self.run.over)
    @rule()
    def resume(self) -> None:
        self._hear(events.ResumeRequested())

    @precondition(lambda self: not self.run.over)
    @rule(number=st.integers(1, 5))
    def ask_for_another_try(self, number: int) -> None:
        self._hear(events.RetryRequested(f"LLD-{number}"))

    @precondition(lambda self: not self.run.over)
    @rule(workers=st.integers(0, 4))
    def change_the_number_of_workers(self, workers: int) -> None:
        self._hear(events.WorkerCountRequested(workers))

    @precondition(lambda self: not self.run.over)
    @rule(seconds=st.floats(0.1, 500.0))
    def sleep(self, seconds: float) -> None:
        """Ctrl-Z, and fg after a while: no worker notices, and none is late for it."""
        self._bury()
        if self.run.over:
            return
        self._hear(events.RunSuspended())
        assert all(life.frozen for life in self.lives.values())
        self.now += seconds
        for life in self.lives.values():
            life.began += seconds
        self._hear(events.RunContinued(seconds))
        assert not any(life.frozen for life in self.lives.values())

    @precondition(lambda self: not self.run.over)
    @rule(count=st.integers(1, 3))
    def edit_the_credentials(self, count: int) -> None:
        self.keys = count
        self._obey(self.run.change_credentials(keys(count), self.now))

    @rule(seconds=st.floats(0.01, 50.0))
    def pass_time(self, seconds: float) -> None:
        """No further than to the deadline: the coordinator never sleeps beyond it."""
        self._bury()
        due = self.run.deadline(self.now)
        self.now = min(self.now + seconds, due if due is not None else self.now + seconds)
        self._obey(self.run.wake(self.now))

    @precondition(lambda self: not self.run.over)
    @rule()
    def jump_to_the_deadline(self) -> None:
        self._jump()

    # What is true at all times.

    @invariant()
    def only_living_workers_hold_keys_or_wait_for_them(self) -> None:
        assert self.pool.held() == sum(bool(life.lease) for life in self.lives.values())
        assert all(want.holder in self.lives for want in self.pool.waiting(math.inf))

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
            # Two deadlines a rounding apart: what lies between them is one of them.
            if moment < due - 1e-6:
                early = copy.deepcopy(self.run).wake(moment)
                assert not early.commands and not early.news, "it was due before the deadline"

    def teardown(self) -> None:
        """From wherever the run has come to: once workers behave, it ends."""
        steps = 0
        if self.paused and not self.run.over:
            self._hear(events.ResumeRequested())
        while self.items and not self.run.over:
            steps += 1
            assert steps < ENOUGH_STEPS, "the run does not come to an end"
            if not self._behave():
                self._jump()
        assert set(self.ended) == set(self.items)
        assert self.runs_ended == bool(self.items)

    # The engine.

    def _behave(self) -> bool:
        """One good step of one worker, if any can make one."""
        for life in list(self.lives.values()):
            if life.doomed or life.reported:
                self._end(life)
            elif life.stopping:
                self._report(life, Outcome(Ending.INTERRUPTED))
            elif life.lease:
                self._return(life, None)
            elif life.idle:
                self._report(life, APPROVED)
            else:
                continue
            return True
        return False

    def _bury(self) -> None:
        """The kernel takes no time to kill."""
        for life in [life for life in self.lives.values() if life.doomed]:
            self._end(life)

    def _jump(self) -> None:
        self._bury()
        if self.run.over:
            return
        due = self.run.deadline(self.now)
        assert due is not None
        self.now = max(self.now, due)
        self._obey(self.run.wake(self.now))

    def _want(self, life: Life) -> None:
        self._hear(self._wish(life))

    def _wish(self, life: Life) -> events.LeaseRequested:
        self.calls += 1
        life.fresh, life.call = False, f"call-{self.calls}"
        return events.LeaseRequested(life.item, life.call, ("gemini",))

    def _return(self, life: Life, refusal: Refusal | None) -> None:
        lease, life.lease = life.lease, ""
        self._hear(events.LeaseReleased(life.item, lease, 1.0, refusal=refusal))

    def _report(self, life: Life, outcome: Outcome) -> None:
        life.fresh, life.reported = False, True
        if outcome.ending is Ending.FAILED:
            self.guilty.add(life.item)
        self._hear(events.WorkerReported(life.item, outcome))

    def _fail_to_start(self, life: Life) -> None:
        self.guilty.add(life.item)
        del self.lives[life.item]
        self._hear(events.WorkerStartFailed(life.item, "EAGAIN"))

    def _end(self, life: Life) -> None:
        del self.lives[life.item]
        self._hear(events.WorkerExited(life.item, "signal 9", clean=False))

    def _hear(self, *heard: events.Event) -> None:
        self._obey(self.run.handle_all(heard, self.now))

    def _obey(self, decision: StepResult) -> None:
        for news in decision.news:
            self._note(news)
        for command in decision.commands:
            self._carry_out(command)

    def _note(self, news: events.News) -> None:
        match news:
            case events.ItemEnded():
                assert news.item not in self.ended, "an item ends once"
                assert news.attempts <= self.allowed[news.item]
                assert news.outcome.ending is not Ending.FAILED or self._may_fail(news.item)
                self.ended[news.item] = news.outcome
            case events.ItemStarted():
                assert 1 <= news.attempt <= self.allowed[news.item]
            case events.SlotRetired():
                self.slots_left = news.slots_left
            case events.ShutdownStarted():
                self.stop_began = True
            case events.RunEnded():
                assert not self.lives
                self.runs_ended += 1
            case _:
                self._note_request(news)

    def _note_request(self, news: events.News) -> None:
        match news:
            case events.ItemSuspended():
                self.allowed[news.item] += 1
            case events.ItemRequeued():
                ended = self.ended.pop(news.item)
                assert ended.ending in (Ending.FAILED, Ending.ELSEWHERE)
                self.allowed[news.item] += self.limits.retries + 1
            case events.WorkerCountChanged():
                assert 1 <= news.workers != news.previous == self.workers
                self.workers = news.workers
            case events.RunPaused():
                self.paused = True
            case events.RunResumed():
                self.paused = False
            case _:
                pass

    def _may_fail(self, item: str) -> bool:
        """An item fails for what it or its worker did, or with the last worker slot; never for quota."""
        return item in self.guilty or self.slots_left == 0

    def _carry_out(self, command: Command) -> None:
        match command:
            case StartWorker():
                assert not self.stop_began, "no worker is started once the stop has begun"
                assert not self.paused, "no worker is started while the run is paused"
                assert len(self.lives) < self.workers, "more workers than asked for"
                assert command.item not in self.lives and command.item not in self.ended
                self.lives[command.item] = Life(command.item, self.now)
            case StopWorker():
                self.lives[command.item].stopping = True
            case KillWorker():
                life = self.lives[command.item]
                late = self.now >= life.began + self.limits.timeout - 1e-6
                asked = life.stopping or self.stop_began
                assert late or life.reported or asked, "killed without a reason"
                self.guilty.add(command.item)
                life.doomed = True
            case FreezeWorker():
                self.lives[command.item].frozen = True
            case ThawWorker():
                self.lives[command.item].frozen = False
            case GrantLease():
                assert not self.paused, "no call begins while the run is paused"
                life = self.lives[command.item]
                assert life.call == command.call and not life.lease
                life.call, life.lease = "", command.lease

    def _waits(self, life: Life) -> bool:
        return bool(life.call) and self.lives.get(life.item) is life and not life.doomed

    def _some(self, what: Kind) -> bool:
        return any(what(life) for life in self.lives.values())

    def _choose(self, data: st.DataObject, what: Kind) -> Life:
        items = sorted(item for item, life in self.lives.items() if what(life))
        return self.lives[data.draw(st.sampled_from(items))]


# No shrinking: it takes minutes, and a life of forty steps can be read.
RunMachine.TestCase.settings = settings(
    max_examples=10, stateful_step_count=40, deadline=None, phases=[Phase.reuse, Phase.generate]
)
TestRunMachine = RunMachine.TestCase


@pytest.mark.slow
class TestRunMachineAtLength(RunMachine.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(TestRunMachine.settings, max_examples=40)
