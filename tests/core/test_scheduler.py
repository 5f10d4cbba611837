"""The brain of a run, told events at times that the test chooses."""

from collections.abc import Callable
from typing import TypeVar

import pytest

from agentos.core.protocol import events
from agentos.core.protocol.commands import (
    Command,
    GrantLease,
    KillWorker,
    StartWorker,
    StepResult,
    StopWorker,
)
from agentos.core.protocol.results import Ending, Outcome, TakenItem, Usage, Verdict, failed, failed_transient
from agentos.core.quota.budget import Limits
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.core.scheduling.scheduler import Scheduler

from .builders import keys, steady
from .scheduler_harness import pass_time

T = TypeVar("T")
APPROVED = Outcome(Ending.FINISHED, Verdict.APPROVED, 2)


class Stage:
    """A run with a clock; remembers everything it was told to do and to tell."""

    def __init__(self, items: int, limits: Limits, key_count: int = 4) -> None:
        names = tuple(f"LLD-{number}" for number in range(1, items + 1))
        self.now = 0.0
        self.commands: list[Command] = []
        self.news: list[events.News] = []
        self.run = Scheduler(names, Pool(keys(key_count)), limits, steady, self.now)
        self._take(self.run.begin(self.now))

    def hear(self, *heard: events.Event) -> None:
        for event in heard:
            self._take(self.run.handle(event, self.now))

    def at(self, now: float) -> None:
        for decision in pass_time(self.run, self.now, now):
            self._take(decision)
        self.now = now

    def appear(self, item: str) -> None:
        self.hear(events.WorkerStarted(item, 4711))

    def report(self, item: str, outcome: Outcome) -> None:
        self.hear(events.WorkerReported(item, outcome), ended(item, "exit 0"))

    def take_lease(self, item: str) -> str:
        self.hear(events.LeaseRequested(item, f"call-{len(self.commands)}", ("gemini",)))
        return self.told(GrantLease)[-1].lease

    def refuse(self, item: str, refusal: Refusal) -> None:
        self.hear(events.LeaseReleased(item, self.take_lease(item), 1.0, refusal=refusal))

    def told(self, kind: type[T]) -> list[T]:
        return [told for told in (*self.commands, *self.news) if isinstance(told, kind)]

    def started(self) -> list[str]:
        return [command.item for command in self.told(StartWorker)]

    def outcome(self, item: str) -> Outcome:
        (found,) = [told.outcome for told in self.told(events.ItemEnded) if told.item == item]
        return found

    def _take(self, decision: StepResult) -> None:
        self.commands += decision.commands
        self.news += decision.news


def ended(item: str, cause: str = "signal 9") -> events.WorkerExited:
    return events.WorkerExited(item, cause, clean=cause == "exit 0")


# Starting.


def test_as_many_items_start_as_there_are_workers_and_the_next_when_one_ends() -> None:
    stage = Stage(4, Limits(parallel=2))
    assert stage.started() == ["LLD-1", "LLD-2"]
    stage.report("LLD-2", APPROVED)
    assert stage.started() == ["LLD-1", "LLD-2", "LLD-3"]


def test_a_run_ends_with_its_last_item_and_says_so_once() -> None:
    stage = Stage(2, Limits(parallel=2))
    stage.now = 10.0
    stage.report("LLD-1", APPROVED)
    assert stage.told(events.RunEnded) == []
    stage.report("LLD-2", APPROVED)
    assert stage.run.over
    assert stage.told(events.RunEnded) == [events.RunEnded(0, 10.0, 0.0)]


def test_a_run_of_nothing_is_over_at_once() -> None:
    assert Stage(0, Limits()).told(events.RunEnded) == [events.RunEnded(0, 0.0, 0.0)]


def test_fewer_keys_than_workers_are_named_at_the_start() -> None:
    assert Stage(3, Limits(parallel=3), key_count=2).news[0] == events.KeysFewerThanWorkers(2, 3)
    assert Stage(2, Limits(parallel=3), key_count=2).told(events.KeysFewerThanWorkers) == []


def test_with_one_usable_slot_no_further_item_starts_while_one_is_running() -> None:
    stage = Stage(2, Limits(parallel=2), key_count=1)
    assert stage.started() == ["LLD-1"]
    stage.report("LLD-1", APPROVED)
    assert stage.started() == ["LLD-1", "LLD-2"]


def test_parallelism_comes_back_with_the_keys() -> None:
    stage = Stage(3, Limits(parallel=2), key_count=2)
    stage.refuse("LLD-1", Refusal(RefusalKind.RATE_LIMITED, "429", 30.0))
    stage.report("LLD-2", APPROVED)
    assert stage.started() == ["LLD-1", "LLD-2"]
    assert stage.run.deadline(0.0) == 30.0
    stage.at(30.0)
    assert stage.started() == ["LLD-1", "LLD-2", "LLD-3"]


# Keys.


def test_a_lease_carries_what_was_asked_for() -> None:
    stage = Stage(1, Limits())
    stage.hear(events.LeaseRequested("LLD-1", "draft 1", ("gemini",)))
    (grant,) = stage.told(GrantLease)
    assert (grant.item, grant.call, grant.key) == ("LLD-1", "draft 1", "key-1")
    assert stage.told(events.LeaseGranted) == [events.LeaseGranted("LLD-1", "key-1", "lease-1", 0.0)]


def test_a_worker_that_dies_gives_its_lease_to_the_next_at_once() -> None:
    stage = Stage(2, Limits(parallel=2), key_count=2)
    stage.take_lease("LLD-1")
    stage.run.change_credentials(keys(1), stage.now)
    stage.hear(events.LeaseRequested("LLD-2", "draft", ("gemini",)))
    assert len(stage.told(GrantLease)) == 1
    stage.hear(ended("LLD-1"))
    assert [(grant.item, grant.key) for grant in stage.told(GrantLease)] == [
        ("LLD-1", "key-1"),
        ("LLD-2", "key-1"),
    ]


def test_refusals_use_up_no_attempt_and_no_item_fails_for_quota() -> None:
    stage = Stage(1, Limits(retries=0, timeout=1e6), key_count=1)
    lease = stage.take_lease("LLD-1")
    for call in range(20):
        refusal = Refusal(RefusalKind.RATE_LIMITED, "429", 5.0)
        stage.hear(events.LeaseReleased("LLD-1", lease, 1.0, refusal=refusal))
        stage.hear(events.LeaseRequested("LLD-1", f"again-{call}", ("gemini",)))
        stage.at(stage.now + 3600.0)
        assert stage.told(GrantLease)[-1].call == f"again-{call}"
        lease = stage.told(GrantLease)[-1].lease
        stage.hear(events.LineWritten("LLD-1", "calling"))
    stage.report("LLD-1", APPROVED)
    (told,) = stage.told(events.ItemEnded)
    assert told.outcome is APPROVED and told.attempts == 1


def test_when_no_key_can_come_back_in_time_the_run_stops_with_75() -> None:
    stage = Stage(3, Limits(parallel=1, max_wait=10.0), key_count=1)
    stage.refuse("LLD-1", Refusal(RefusalKind.RATE_LIMITED, "429", 60.0))
    stage.hear(events.LeaseRequested("LLD-1", "again", ("gemini",)))
    assert stage.told(StopWorker) == [StopWorker("LLD-1")]
    assert stage.outcome("LLD-3").ending is Ending.INTERRUPTED
    stage.report("LLD-1", Outcome(Ending.INTERRUPTED))
    assert stage.told(events.RunEnded)[0].exit_code == 75
    assert "key-1" in stage.told(events.RunEnded)[0].detail


def test_when_every_key_is_rejected_the_run_stops_with_4() -> None:
    stage = Stage(1, Limits(), key_count=1)
    stage.refuse("LLD-1", Refusal(RefusalKind.KEY_REJECTED, "401 unauthorised"))
    stage.report("LLD-1", Outcome(Ending.INTERRUPTED))
    assert stage.run.exit_code() == 4


def test_a_storm_does_not_keep_a_run_from_looking_again_when_its_worker_died() -> None:
    stage = Stage(1, Limits(parallel=1))
    for _ in range(5):
        stage.refuse("LLD-1", Refusal(RefusalKind.PROVIDER_ERROR, "503"))
        stage.at(stage.now + 61.0)
    assert stage.told(events.BreakerOpened)
    stage.hear(ended("LLD-1"))
    stage.at(stage.now + 5.0)
    assert stage.started() == ["LLD-1", "LLD-1"]


# Stopping.


@pytest.mark.parametrize(("signal", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_stops_the_workers_and_what_waits_ends_as_interrupted(signal: str, code: int) -> None:
    stage = Stage(3, Limits(parallel=2))
    stage.hear(events.StopRequested(signal))
    assert stage.told(StopWorker) == [StopWorker("LLD-1"), StopWorker("LLD-2")]
    assert stage.told(events.ShutdownStarted) == [events.ShutdownStarted(signal)]
    assert stage.outcome("LLD-3") == Outcome(Ending.INTERRUPTED)
    for item in ("LLD-1", "LLD-2"):
        stage.report(item, Outcome(Ending.INTERRUPTED))
    assert stage.told(events.RunEnded)[0].exit_code == code
    assert stage.started() == ["LLD-1", "LLD-2"]


def test_workers_that_do_not_stop_are_killed_after_four_seconds() -> None:
    stage = Stage(2, Limits(parallel=2))
    stage.at(10.0)
    stage.hear(events.StopRequested("SIGINT"))
    stage.report("LLD-1", Outcome(Ending.INTERRUPTED))
    stage.at(13.9)
    assert stage.told(KillWorker) == []
    assert stage.run.deadline(13.9) == 14.0
    stage.at(14.0)
    assert stage.told(KillWorker) == [KillWorker("LLD-2")]
    assert stage.told(events.WorkersKilled) == [events.WorkersKilled(("LLD-2",))]
    stage.hear(ended("LLD-2"))
    assert stage.outcome("LLD-2").ending is Ending.INTERRUPTED


def test_a_second_signal_kills_at_once() -> None:
    stage = Stage(2, Limits(parallel=2))
    stage.hear(events.StopRequested("SIGINT"), events.StopRequested("SIGINT"))
    assert stage.told(KillWorker) == [KillWorker("LLD-1"), KillWorker("LLD-2")]
    stage.hear(events.StopRequested("SIGINT"), ended("LLD-1"), ended("LLD-2"))
    assert stage.run.over and len(stage.told(events.RunEnded)) == 1


def test_a_worker_that_could_not_start_when_the_stop_came_is_interrupted() -> None:
    stage = Stage(1, Limits())
    stage.hear(events.StopRequested("SIGINT"), events.WorkerStartFailed("LLD-1", "EAGAIN"))
    assert stage.run.over and stage.outcome("LLD-1").ending is Ending.INTERRUPTED


def test_a_crash_while_stopping_is_an_interruption_and_not_tried_again() -> None:
    stage = Stage(1, Limits())
    stage.hear(events.StopRequested("SIGINT"), ended("LLD-1"))
    assert stage.outcome("LLD-1").ending is Ending.INTERRUPTED and stage.run.exit_code() == 130


def test_no_key_is_promised_to_whoever_asks_while_stopping() -> None:
    stage = Stage(1, Limits())
    stage.hear(events.StopRequested("SIGINT"), events.LeaseRequested("LLD-1", "call", ("gemini",)))
    assert stage.told(GrantLease) == []


# Trying again.


def test_an_error_that_can_pass_is_tried_again_with_growing_waits() -> None:
    stage = Stage(1, Limits(retries=2))
    for wait in (1.0, 2.0):
        prestarted = len(stage.started())
        stage.report("LLD-1", failed_transient("OSError"))
        assert stage.told(events.ItemRetried)[-1].seconds == wait
        stage.at(stage.now + wait - 0.01)
        assert len(stage.started()) == prestarted
        stage.at(stage.now + 0.01)
        assert len(stage.started()) == prestarted + 1
    stage.report("LLD-1", failed_transient("OSError"))
    assert [(told.attempt, told.max_attempts) for told in stage.told(events.ItemRetried)] == [(2, 3), (3, 3)]
    assert stage.told(events.ItemEnded)[0].attempts == 3
    assert stage.run.exit_code() == 1


def test_an_error_that_cannot_pass_is_not_tried_again() -> None:
    stage = Stage(1, Limits(retries=2))
    stage.report("LLD-1", failed("Invalid spec format"))
    assert stage.outcome("LLD-1").error == "Invalid spec format" and stage.run.over


def test_a_worker_that_ends_without_an_outcome_is_a_failure_however_cleanly_it_exits() -> None:
    stage = Stage(1, Limits(retries=0))
    stage.hear(ended("LLD-1", "exit 0"))
    assert stage.outcome("LLD-1").ending is Ending.FAILED
    assert "without an outcome: exit 0" in (stage.outcome("LLD-1").error or "")


def test_one_crashing_item_takes_nothing_from_the_others() -> None:
    stage = Stage(3, Limits(parallel=2, retries=2))
    for _ in range(3):
        stage.hear(ended("LLD-1"))
        stage.at(stage.now + 5.0)
        for item in [item for item in ("LLD-2", "LLD-3") if item in stage.started()]:
            if not [told for told in stage.told(events.ItemEnded) if told.item == item]:
                stage.report(item, APPROVED)
    assert stage.outcome("LLD-2") is APPROVED and stage.outcome("LLD-3") is APPROVED
    assert stage.outcome("LLD-1").ending is Ending.FAILED and stage.run.exit_code() == 1


def test_an_item_of_another_run_is_looked_at_once_more_and_then_left_to_it() -> None:
    stage = Stage(2, Limits(retries=0))
    elsewhere = Outcome(Ending.ELSEWHERE, error="another run is working on it")
    stage.report("LLD-1", elsewhere)
    stage.report("LLD-2", APPROVED)
    stage.report("LLD-1", elsewhere)
    assert stage.started() == ["LLD-1", "LLD-2", "LLD-1"]
    assert stage.outcome("LLD-1") is elsewhere and stage.run.exit_code() == 0


def test_items_that_another_run_took_are_skipped_and_never_started() -> None:
    stage = Stage(4, Limits(parallel=1, retries=0))
    held = Outcome(Ending.ELSEWHERE, error="another run is working on it")
    done = Outcome(Ending.FINISHED_ELSEWHERE, Verdict.APPROVED)
    assert stage.run.next_items(stage.now) == [], "its only slot is taken"
    stage.hear(events.WorkerReported("LLD-1", APPROVED))
    stage.run.grant_phase([ended("LLD-1")], stage.now)
    assert stage.run.next_items(stage.now) == ["LLD-2"]
    assert stage.run.skip_taken([TakenItem("LLD-2", held)]).news == [], "it is checked once more, at the end"
    assert stage.run.next_items(stage.now) == ["LLD-3"]
    (news,) = stage.run.skip_taken([TakenItem("LLD-3", done)]).news
    assert isinstance(news, events.ItemEnded) and (news.outcome, news.attempts) == (done, 0)
    (news,) = stage.run.skip_taken([TakenItem("LLD-2", held)]).news
    assert isinstance(news, events.ItemEnded) and news.outcome is held
    assert stage.run.next_items(stage.now) == ["LLD-4"] and stage.run.exit_code() == 0


# The health of slots.


def test_three_crashes_in_a_row_rest_the_slot() -> None:
    stage = Stage(4, Limits(retries=0))
    for item in ("LLD-1", "LLD-2", "LLD-3"):
        stage.hear(ended(item))
    assert stage.told(events.SlotCooldownStarted) == [events.SlotCooldownStarted(1, 1.0, "signal 9")]
    assert stage.started() == ["LLD-1", "LLD-2", "LLD-3"]
    stage.at(1.0)
    assert stage.started()[-1] == "LLD-4"


def test_failures_of_the_items_own_are_not_the_slots() -> None:
    stage = Stage(6, Limits(retries=0))
    for number in range(1, 7):
        stage.report(f"LLD-{number}", failed("Invalid spec format"))
    assert stage.told(events.SlotCooldownStarted) == [] and stage.run.over


def test_a_slot_that_never_recovers_is_retired_and_the_run_goes_on_with_one_fewer() -> None:
    stage = Stage(60, Limits(parallel=2, retries=0))
    crash_slot(stage, 1, until=lambda: bool(stage.told(events.SlotRetired)))
    assert stage.told(events.SlotRetired) == [events.SlotRetired(1, 1)]
    assert len(stage.told(events.SlotCooldownStarted)) == 5
    assert not stage.run.over


def crash_slot(stage: Stage, slot: int, until: Callable[[], bool]) -> None:
    """Whatever starts in this slot crashes; the other slot's item just goes on."""
    while not until():
        for told in stage.told(events.ItemStarted):
            over = {ended.item for ended in stage.told(events.ItemEnded)}
            if told.slot == slot and told.item not in over:
                stage.hear(ended(told.item))
        stage.at(stage.now + 5.0)


def test_when_no_worker_can_be_started_the_run_ends_instead_of_waiting_for_ever() -> None:
    stage = Stage(3, Limits())
    for _ in range(100):
        if stage.run.over:
            break
        stage.hear(events.WorkerStartFailed(stage.started()[-1], "EAGAIN"))
        stage.at(stage.now + 61.0)
    assert stage.run.over and stage.run.exit_code() == 1
    assert {told.outcome.error for told in stage.told(events.ItemEnded)} == {"no worker slot is left"}
    assert stage.told(events.SlotRetired) == [events.SlotRetired(1, 0)]


def test_a_worker_that_could_not_start_has_used_up_no_attempt() -> None:
    stage = Stage(1, Limits(retries=0))
    stage.hear(events.WorkerStartFailed("LLD-1", "EAGAIN"))
    stage.at(1.0)
    stage.report("LLD-1", APPROVED)
    assert stage.told(events.ItemEnded)[0].attempts == 1


# Time.


def test_an_item_over_its_time_is_killed_and_tried_again_with_its_own_time() -> None:
    stage = Stage(1, Limits(timeout=100.0, retries=1))
    stage.appear("LLD-1")
    stage.at(99.9)
    assert stage.told(KillWorker) == []
    stage.at(100.0)
    assert stage.told(KillWorker) == [KillWorker("LLD-1")]
    stage.hear(ended("LLD-1"))
    assert "--timeout" in stage.told(events.ItemRetried)[0].reason
    stage.at(101.0)
    stage.appear("LLD-1")
    stage.at(200.9)
    assert len(stage.told(KillWorker)) == 1
    stage.at(201.0)
    stage.hear(ended("LLD-1"))
    assert "--timeout" in (stage.outcome("LLD-1").error or "")
    assert stage.told(events.SlotCooldownStarted) == []


def test_waiting_for_a_key_does_not_count_against_the_items_time() -> None:
    stage = Stage(1, Limits(timeout=100.0), key_count=1)
    stage.appear("LLD-1")
    stage.at(10.0)
    stage.refuse("LLD-1", Refusal(RefusalKind.RATE_LIMITED, "429", 1000.0))
    stage.hear(events.LeaseRequested("LLD-1", "again", ("gemini",)))
    stage.at(1010.0)
    assert stage.told(events.LeaseGranted)[-1].waited_seconds == 1000.0
    stage.at(1099.9)
    assert stage.told(KillWorker) == []
    stage.at(1100.0)
    assert stage.told(KillWorker) == [KillWorker("LLD-1")]
    stage.hear(events.StopRequested("SIGINT"), ended("LLD-1", "signal 9"))
    assert stage.told(events.RunEnded)[-1].waited_seconds == 1000.0


def test_a_silent_item_is_slow_then_stalled_each_said_once() -> None:
    stage = Stage(1, Limits())
    stage.appear("LLD-1")
    stage.hear(events.NodeStarted("LLD-1", "N1_design", 1))
    stage.at(500.0)
    assert stage.told(events.ItemQuiet) == [
        events.ItemQuiet("LLD-1", "SLOW", "N1_design", 30.0),
        events.ItemQuiet("LLD-1", "STALLED", "N1_design", 120.0),
    ]


def test_a_sign_of_life_begins_the_silence_anew() -> None:
    stage = Stage(1, Limits())
    stage.appear("LLD-1")
    for now in (29.0, 58.0, 87.0):
        stage.at(now)
        stage.hear(events.LineWritten("LLD-1", "still here"))
    assert stage.told(events.ItemQuiet) == []


def test_what_is_usual_is_learnt_from_the_longest_call() -> None:
    stage = Stage(1, Limits())
    stage.hear(events.LeaseReleased("LLD-1", stage.take_lease("LLD-1"), 20.0))
    stage.at(79.9)
    assert stage.told(events.ItemQuiet) == []
    stage.at(80.0)
    assert [told.level for told in stage.told(events.ItemQuiet)] == ["SLOW"]


def test_a_worker_that_lingers_after_its_last_word_is_killed_and_its_word_stands() -> None:
    stage = Stage(1, Limits())
    stage.hear(events.WorkerReported("LLD-1", APPROVED))
    stage.at(5.0)
    assert stage.told(KillWorker) == [KillWorker("LLD-1")]
    stage.hear(ended("LLD-1"))
    assert stage.outcome("LLD-1") is APPROVED


def test_a_heartbeat_is_told_each_minute() -> None:
    stage = Stage(1, Limits())
    stage.at(180.0)
    assert stage.told(events.Heartbeat) == [events.Heartbeat(at) for at in (60.0, 120.0, 180.0)]


def test_usage_and_time_of_an_item_add_up_over_its_calls() -> None:
    stage = Stage(1, Limits())
    stage.appear("LLD-1")
    for _ in range(2):
        lease = stage.take_lease("LLD-1")
        stage.at(stage.now + 3.0)
        stage.hear(events.LeaseReleased("LLD-1", lease, 3.0, Usage(1, 100, 20)))
    stage.report("LLD-1", APPROVED)
    (told,) = stage.told(events.ItemEnded)
    assert told.usage == Usage(2, 200, 40) and told.seconds == 6.0
