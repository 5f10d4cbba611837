"""The scheduler, given events at times that the test chooses."""

from collections.abc import Callable
from typing import TypeVar

import pytest

from agentos.core.planning.worker_task import RoleModel
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

from .builders import key, keys, proven_pool, steady
from .scheduler_harness import pass_time

T = TypeVar("T")
APPROVED = Outcome(Ending.FINISHED, Verdict.APPROVED, 2)


class Harness:
    """Drives a scheduler with its own clock and records every command and event that it returns."""

    def __init__(self, items: int, limits: Limits, key_count: int = 4) -> None:
        names = tuple(f"LLD-{number}" for number in range(1, items + 1))
        self.now = 0.0
        self.commands: list[Command] = []
        self.events: list[events.SchedulerEvent] = []
        self.run = Scheduler(names, Pool(keys(key_count)), limits, steady, self.now)
        self._collect(self.run.begin(self.now))

    def handle(self, *received: events.Event) -> None:
        for event in received:
            self._collect(self.run.handle(event, self.now))

    def advance_to(self, now: float) -> None:
        for result in pass_time(self.run, self.now, now):
            self._collect(result)
        self.now = now

    def start_worker(self, item: str) -> None:
        self.handle(events.WorkerStarted(item, 4711))

    def report(self, item: str, outcome: Outcome) -> None:
        self.handle(events.WorkerReported(item, outcome), ended(item, "exit 0"))

    def take_lease(self, item: str) -> str:
        self.handle(events.LeaseRequested(item, f"call-{len(self.commands)}", ("gemini",)))
        return self.outputs(GrantLease)[-1].lease

    def refuse(self, item: str, refusal: Refusal) -> None:
        self.handle(events.LeaseReleased(item, self.take_lease(item), 1.0, refusal=refusal))

    def outputs(self, kind: type[T]) -> list[T]:
        return [output for output in (*self.commands, *self.events) if isinstance(output, kind)]

    def started(self) -> list[str]:
        return [command.item for command in self.outputs(StartWorker)]

    def outcome(self, item: str) -> Outcome:
        (found,) = [event.outcome for event in self.outputs(events.ItemEnded) if event.item == item]
        return found

    def _collect(self, result: StepResult) -> None:
        self.commands += result.commands
        self.events += result.events


def ended(item: str, cause: str = "signal 9") -> events.WorkerExited:
    return events.WorkerExited(item, cause, clean=cause == "exit 0")


# Starting.


def test_as_many_items_start_as_there_are_workers_and_the_next_when_one_ends() -> None:
    harness = Harness(4, Limits(parallel=2))
    assert harness.started() == ["LLD-1", "LLD-2"]
    harness.report("LLD-2", APPROVED)
    assert harness.started() == ["LLD-1", "LLD-2", "LLD-3"]


def test_a_run_ends_with_its_last_item_and_says_so_once() -> None:
    harness = Harness(2, Limits(parallel=2))
    harness.now = 10.0
    harness.report("LLD-1", APPROVED)
    assert harness.outputs(events.RunEnded) == []
    harness.report("LLD-2", APPROVED)
    assert harness.run.over
    assert harness.outputs(events.RunEnded) == [events.RunEnded(0, 10.0, 0.0)]


def test_a_run_without_items_ends_at_once() -> None:
    assert Harness(0, Limits()).outputs(events.RunEnded) == [events.RunEnded(0, 0.0, 0.0)]


def test_fewer_keys_than_workers_are_named_at_the_start() -> None:
    assert Harness(3, Limits(parallel=3), key_count=2).events[0] == events.KeysFewerThanWorkers(2, 3)
    assert Harness(2, Limits(parallel=3), key_count=2).outputs(events.KeysFewerThanWorkers) == []


def test_too_few_keys_for_one_role_are_named_even_if_there_are_enough_in_total() -> None:
    credentials = [key("gemini-1"), *(key(f"anthropic-{n}", "anthropic") for n in range(1, 4))]
    roles = (
        RoleModel("drafter", ("gemini",), ("gemini-2.5-pro",)),
        RoleModel("reviewer", ("gemini", "anthropic"), ("gemini-2.5-pro", "claude-sonnet-4-5")),
    )
    items = tuple(f"LLD-{number}" for number in range(1, 4))
    run = Scheduler(items, proven_pool(credentials), Limits(parallel=3), steady, 0.0)
    run.set_roles(roles)
    assert run.begin(0.0).events[0] == events.KeysFewerThanWorkers(1, 3, "drafter", ("gemini",))


def test_with_one_usable_slot_no_further_item_starts_while_one_is_running() -> None:
    harness = Harness(2, Limits(parallel=2), key_count=1)
    assert harness.started() == ["LLD-1"]
    harness.report("LLD-1", APPROVED)
    assert harness.started() == ["LLD-1", "LLD-2"]


def test_more_items_start_when_keys_recover() -> None:
    harness = Harness(3, Limits(parallel=2), key_count=2)
    harness.refuse("LLD-1", Refusal(RefusalKind.RATE_LIMITED, "429", 30.0))
    harness.report("LLD-2", APPROVED)
    assert harness.started() == ["LLD-1", "LLD-2"]
    assert harness.run.deadline(0.0) == 30.0
    harness.advance_to(30.0)
    assert harness.started() == ["LLD-1", "LLD-2", "LLD-3"]


# Keys.


def test_a_granted_lease_contains_what_was_requested() -> None:
    harness = Harness(1, Limits())
    harness.handle(events.LeaseRequested("LLD-1", "draft 1", ("gemini",)))
    (grant,) = harness.outputs(GrantLease)
    assert (grant.item, grant.call, grant.key) == ("LLD-1", "draft 1", "key-1")
    assert harness.outputs(events.LeaseGranted) == [events.LeaseGranted("LLD-1", "key-1", "lease-1", 0.0)]


def test_the_lease_of_a_crashed_worker_is_granted_to_the_next_at_once() -> None:
    harness = Harness(2, Limits(parallel=2), key_count=2)
    harness.take_lease("LLD-1")
    harness.run.change_credentials(keys(1), harness.now)
    harness.handle(events.LeaseRequested("LLD-2", "draft", ("gemini",)))
    assert len(harness.outputs(GrantLease)) == 1
    harness.handle(ended("LLD-1"))
    assert [(grant.item, grant.key) for grant in harness.outputs(GrantLease)] == [
        ("LLD-1", "key-1"),
        ("LLD-2", "key-1"),
    ]


def test_refusals_use_up_no_attempt_and_no_item_fails_for_quota() -> None:
    harness = Harness(1, Limits(retries=0, timeout=1e6), key_count=1)
    lease = harness.take_lease("LLD-1")
    for call in range(20):
        refusal = Refusal(RefusalKind.RATE_LIMITED, "429", 5.0)
        harness.handle(events.LeaseReleased("LLD-1", lease, 1.0, refusal=refusal))
        harness.handle(events.LeaseRequested("LLD-1", f"again-{call}", ("gemini",)))
        harness.advance_to(harness.now + 3600.0)
        assert harness.outputs(GrantLease)[-1].call == f"again-{call}"
        lease = harness.outputs(GrantLease)[-1].lease
        harness.handle(events.LineWritten("LLD-1", "calling"))
    harness.report("LLD-1", APPROVED)
    (event,) = harness.outputs(events.ItemEnded)
    assert event.outcome is APPROVED and event.attempts == 1


def test_if_no_key_recovers_within_max_wait_the_run_stops_with_75() -> None:
    harness = Harness(3, Limits(parallel=1, max_wait=10.0), key_count=1)
    harness.refuse("LLD-1", Refusal(RefusalKind.RATE_LIMITED, "429", 60.0))
    harness.handle(events.LeaseRequested("LLD-1", "again", ("gemini",)))
    assert harness.outputs(StopWorker) == [StopWorker("LLD-1")]
    harness.advance_to(harness.now)
    assert harness.outcome("LLD-3").ending is Ending.INTERRUPTED
    harness.report("LLD-1", Outcome(Ending.INTERRUPTED))
    assert harness.outputs(events.RunEnded)[0].exit_code == 75
    assert "key-1" in harness.outputs(events.RunEnded)[0].detail


def test_when_every_key_is_rejected_the_run_stops_with_4() -> None:
    harness = Harness(1, Limits(), key_count=1)
    harness.refuse("LLD-1", Refusal(RefusalKind.KEY_REJECTED, "401 unauthorised"))
    harness.report("LLD-1", Outcome(Ending.INTERRUPTED))
    assert harness.run.exit_code() == 4


def test_an_open_breaker_is_probed_again_even_if_the_probing_worker_crashed() -> None:
    harness = Harness(1, Limits(parallel=1))
    for _ in range(5):
        harness.refuse("LLD-1", Refusal(RefusalKind.PROVIDER_ERROR, "503"))
        harness.advance_to(harness.now + 61.0)
    assert harness.outputs(events.BreakerOpened)
    harness.handle(ended("LLD-1"))
    harness.advance_to(harness.now + 5.0)
    assert harness.started() == ["LLD-1", "LLD-1"]


# Stopping.


@pytest.mark.parametrize(("signal", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_stops_the_workers_and_queued_items_end_as_interrupted(signal: str, code: int) -> None:
    harness = Harness(3, Limits(parallel=2))
    harness.handle(events.StopRequested(signal))
    assert harness.outputs(StopWorker) == [StopWorker("LLD-1"), StopWorker("LLD-2")]
    assert harness.outputs(events.ShutdownStarted) == [events.ShutdownStarted(signal)]
    assert harness.outcome("LLD-3") == Outcome(Ending.INTERRUPTED)
    for item in ("LLD-1", "LLD-2"):
        harness.report(item, Outcome(Ending.INTERRUPTED))
    assert harness.outputs(events.RunEnded)[0].exit_code == code
    assert harness.started() == ["LLD-1", "LLD-2"]


def test_workers_that_do_not_stop_are_killed_after_four_seconds() -> None:
    harness = Harness(2, Limits(parallel=2))
    harness.advance_to(10.0)
    harness.handle(events.StopRequested("SIGINT"))
    harness.report("LLD-1", Outcome(Ending.INTERRUPTED))
    harness.advance_to(13.9)
    assert harness.outputs(KillWorker) == []
    assert harness.run.deadline(13.9) == 14.0
    harness.advance_to(14.0)
    assert harness.outputs(KillWorker) == [KillWorker("LLD-2")]
    assert harness.outputs(events.WorkersKilled) == [events.WorkersKilled(("LLD-2",))]
    harness.handle(ended("LLD-2"))
    assert harness.outcome("LLD-2").ending is Ending.INTERRUPTED


def test_a_second_signal_kills_at_once() -> None:
    harness = Harness(2, Limits(parallel=2))
    harness.handle(events.StopRequested("SIGINT"), events.StopRequested("SIGINT"))
    assert harness.outputs(KillWorker) == [KillWorker("LLD-1"), KillWorker("LLD-2")]
    harness.handle(events.StopRequested("SIGINT"), ended("LLD-1"), ended("LLD-2"))
    assert harness.run.over and len(harness.outputs(events.RunEnded)) == 1


def test_an_item_whose_worker_could_not_start_during_shutdown_is_interrupted() -> None:
    harness = Harness(1, Limits())
    harness.handle(events.StopRequested("SIGINT"), events.WorkerStartFailed("LLD-1", "EAGAIN"))
    assert harness.run.over and harness.outcome("LLD-1").ending is Ending.INTERRUPTED


def test_a_crash_during_shutdown_is_an_interruption_without_a_retry() -> None:
    harness = Harness(1, Limits())
    harness.handle(events.StopRequested("SIGINT"), ended("LLD-1"))
    assert harness.outcome("LLD-1").ending is Ending.INTERRUPTED and harness.run.exit_code() == 130


def test_no_lease_is_granted_during_shutdown() -> None:
    harness = Harness(1, Limits())
    harness.handle(events.StopRequested("SIGINT"), events.LeaseRequested("LLD-1", "call", ("gemini",)))
    assert harness.outputs(GrantLease) == []


# Trying again.


def test_a_transient_error_is_retried_with_backoff() -> None:
    harness = Harness(1, Limits(retries=2))
    for wait in (1.0, 2.0):
        prestarted = len(harness.started())
        harness.report("LLD-1", failed_transient("OSError"))
        assert harness.outputs(events.ItemRetried)[-1].seconds == wait
        harness.advance_to(harness.now + wait - 0.01)
        assert len(harness.started()) == prestarted
        harness.advance_to(harness.now + 0.01)
        assert len(harness.started()) == prestarted + 1
    harness.report("LLD-1", failed_transient("OSError"))
    assert [(event.attempt, event.max_attempts) for event in harness.outputs(events.ItemRetried)] == [
        (2, 3),
        (3, 3),
    ]
    assert harness.outputs(events.ItemEnded)[0].attempts == 3
    assert harness.run.exit_code() == 1


def test_a_permanent_error_is_not_retried() -> None:
    harness = Harness(1, Limits(retries=2))
    harness.report("LLD-1", failed("Invalid spec format"))
    assert harness.outcome("LLD-1").error == "Invalid spec format" and harness.run.over


def test_a_worker_that_ends_without_an_outcome_is_a_failure_however_cleanly_it_exits() -> None:
    harness = Harness(1, Limits(retries=0))
    harness.handle(ended("LLD-1", "exit 0"))
    assert harness.outcome("LLD-1").ending is Ending.FAILED
    assert "without an outcome: exit 0" in (harness.outcome("LLD-1").error or "")


def test_one_crashing_item_does_not_affect_the_others() -> None:
    harness = Harness(3, Limits(parallel=2, retries=2))
    for _ in range(3):
        harness.handle(ended("LLD-1"))
        harness.advance_to(harness.now + 5.0)
        for item in [item for item in ("LLD-2", "LLD-3") if item in harness.started()]:
            if not [event for event in harness.outputs(events.ItemEnded) if event.item == item]:
                harness.report(item, APPROVED)
    assert harness.outcome("LLD-2") is APPROVED and harness.outcome("LLD-3") is APPROVED
    assert harness.outcome("LLD-1").ending is Ending.FAILED and harness.run.exit_code() == 1


def test_an_item_held_by_another_run_is_checked_once_more_and_then_skipped() -> None:
    harness = Harness(2, Limits(retries=0))
    held = Outcome(Ending.HELD_BY_OTHER_RUN, error="another run is working on it")
    harness.report("LLD-1", held)
    harness.report("LLD-2", APPROVED)
    harness.report("LLD-1", held)
    assert harness.started() == ["LLD-1", "LLD-2", "LLD-1"]
    assert harness.outcome("LLD-1") is held and harness.run.exit_code() == 0


def test_items_that_another_run_took_are_skipped_and_never_started() -> None:
    harness = Harness(4, Limits(parallel=1, retries=0))
    held = Outcome(Ending.HELD_BY_OTHER_RUN, error="another run is working on it")
    done = Outcome(Ending.FINISHED_BY_OTHER_RUN, Verdict.APPROVED)
    assert harness.run.next_items(harness.now) == [], "its only slot is taken"
    harness.handle(events.WorkerReported("LLD-1", APPROVED))
    harness.run.grant_phase([ended("LLD-1")], harness.now)
    assert harness.run.next_items(harness.now) == ["LLD-2"]
    assert harness.run.skip_taken([TakenItem("LLD-2", held)]).events == [], (
        "it is checked once more, at the end"
    )
    assert harness.run.next_items(harness.now) == ["LLD-3"]
    (event,) = harness.run.skip_taken([TakenItem("LLD-3", done)]).events
    assert isinstance(event, events.ItemEnded) and (event.outcome, event.attempts) == (done, 0)
    (event,) = harness.run.skip_taken([TakenItem("LLD-2", held)]).events
    assert isinstance(event, events.ItemEnded) and event.outcome is held
    assert harness.run.next_items(harness.now) == ["LLD-4"] and harness.run.exit_code() == 0


def test_an_item_that_failed_in_another_run_is_not_started_unless_a_person_asks() -> None:
    harness = Harness(2, Limits(parallel=1, retries=0))
    failed_there = Outcome(Ending.FAILED_IN_OTHER_RUN, error="it failed in run B")
    harness.run.skip_taken([TakenItem("LLD-2", failed_there)])
    harness.handle(events.RetryRequested("LLD-2"))
    harness.report("LLD-1", APPROVED)
    assert harness.started() == ["LLD-1", "LLD-2"]
    harness.report("LLD-2", APPROVED)
    assert harness.run.exit_code() == 0
    left = Harness(2, Limits(parallel=1, retries=0))
    left.run.skip_taken([TakenItem("LLD-2", failed_there)])
    left.report("LLD-1", APPROVED)
    assert left.started() == ["LLD-1"] and left.run.exit_code() == 1


def test_a_run_that_stops_tells_items_of_other_runs_from_those_that_nobody_started() -> None:
    harness = Harness(4, Limits(parallel=1, retries=0))
    held = Outcome(Ending.HELD_BY_OTHER_RUN, error="another run is working on it")
    done = Outcome(Ending.FINISHED_BY_OTHER_RUN, Verdict.APPROVED)
    harness.run.grant_phase([events.StopRequested("SIGINT")], harness.now)
    assert harness.run.next_items(harness.now) == ["LLD-2", "LLD-3", "LLD-4"]
    taken = harness.run.skip_taken([TakenItem("LLD-2", done), TakenItem("LLD-3", held)])
    assert [event.outcome for event in taken.events if isinstance(event, events.ItemEnded)] == [done, held]
    (queued,) = harness.run.follow_up(harness.now).events
    assert isinstance(queued, events.ItemEnded)
    assert (queued.item, queued.outcome) == ("LLD-4", Outcome(Ending.INTERRUPTED))


# The health of slots.


def test_three_consecutive_crashes_cool_down_the_slot() -> None:
    harness = Harness(4, Limits(retries=0))
    for item in ("LLD-1", "LLD-2", "LLD-3"):
        harness.handle(ended(item))
    assert harness.outputs(events.SlotCooldownStarted) == [events.SlotCooldownStarted(1, 1.0, "signal 9")]
    assert harness.started() == ["LLD-1", "LLD-2", "LLD-3"]
    harness.advance_to(1.0)
    assert harness.started()[-1] == "LLD-4"


def test_failures_of_the_item_do_not_count_against_the_slot() -> None:
    harness = Harness(6, Limits(retries=0))
    for number in range(1, 7):
        harness.report(f"LLD-{number}", failed("Invalid spec format"))
    assert harness.outputs(events.SlotCooldownStarted) == [] and harness.run.over


def test_a_slot_that_never_recovers_is_retired_and_the_run_goes_on_with_one_fewer() -> None:
    harness = Harness(60, Limits(parallel=2, retries=0))
    crash_slot(harness, 1, until=lambda: bool(harness.outputs(events.SlotRetired)))
    assert harness.outputs(events.SlotRetired) == [events.SlotRetired(1, 1)]
    assert len(harness.outputs(events.SlotCooldownStarted)) == 5
    assert not harness.run.over


def crash_slot(harness: Harness, slot: int, until: Callable[[], bool]) -> None:
    """Whatever starts in this slot crashes; the other slot's item just goes on."""
    while not until():
        for event in harness.outputs(events.ItemStarted):
            over = {ended.item for ended in harness.outputs(events.ItemEnded)}
            if event.slot == slot and event.item not in over:
                harness.handle(ended(event.item))
        harness.advance_to(harness.now + 5.0)


def test_when_no_worker_can_be_started_the_run_ends_instead_of_waiting_for_ever() -> None:
    harness = Harness(3, Limits())
    for _ in range(100):
        if harness.run.over:
            break
        harness.handle(events.WorkerStartFailed(harness.started()[-1], "EAGAIN"))
        harness.advance_to(harness.now + 61.0)
    assert harness.run.over and harness.run.exit_code() == 1
    assert {event.outcome.error for event in harness.outputs(events.ItemEnded)} == {"no worker slot is left"}
    assert harness.outputs(events.SlotRetired) == [events.SlotRetired(1, 0)]


def test_a_worker_that_could_not_start_has_used_up_no_attempt() -> None:
    harness = Harness(1, Limits(retries=0))
    harness.handle(events.WorkerStartFailed("LLD-1", "EAGAIN"))
    harness.advance_to(1.0)
    harness.report("LLD-1", APPROVED)
    assert harness.outputs(events.ItemEnded)[0].attempts == 1


# Time.


def test_an_item_that_times_out_is_killed_and_retried_with_the_whole_timeout() -> None:
    harness = Harness(1, Limits(timeout=100.0, retries=1))
    harness.start_worker("LLD-1")
    harness.advance_to(99.9)
    assert harness.outputs(KillWorker) == []
    harness.advance_to(100.0)
    assert harness.outputs(KillWorker) == [KillWorker("LLD-1")]
    harness.handle(ended("LLD-1"))
    assert "--timeout" in harness.outputs(events.ItemRetried)[0].reason
    harness.advance_to(101.0)
    harness.start_worker("LLD-1")
    harness.advance_to(200.9)
    assert len(harness.outputs(KillWorker)) == 1
    harness.advance_to(201.0)
    harness.handle(ended("LLD-1"))
    assert "--timeout" in (harness.outcome("LLD-1").error or "")
    assert harness.outputs(events.SlotCooldownStarted) == []


def test_waiting_for_a_key_does_not_count_towards_the_timeout() -> None:
    harness = Harness(1, Limits(timeout=100.0), key_count=1)
    harness.start_worker("LLD-1")
    harness.advance_to(10.0)
    harness.refuse("LLD-1", Refusal(RefusalKind.RATE_LIMITED, "429", 1000.0))
    harness.handle(events.LeaseRequested("LLD-1", "again", ("gemini",)))
    harness.advance_to(1010.0)
    assert harness.outputs(events.LeaseGranted)[-1].waited_seconds == 1000.0
    harness.advance_to(1099.9)
    assert harness.outputs(KillWorker) == []
    harness.advance_to(1100.0)
    assert harness.outputs(KillWorker) == [KillWorker("LLD-1")]
    harness.handle(events.StopRequested("SIGINT"), ended("LLD-1", "signal 9"))
    assert harness.outputs(events.RunEnded)[-1].waited_seconds == 1000.0


def test_a_silent_item_is_reported_once_as_slow_and_once_as_stalled() -> None:
    harness = Harness(1, Limits())
    harness.start_worker("LLD-1")
    harness.handle(events.NodeStarted("LLD-1", "N1_design", 1))
    harness.advance_to(500.0)
    assert harness.outputs(events.ItemQuiet) == [
        events.ItemQuiet("LLD-1", "SLOW", "N1_design", 30.0),
        events.ItemQuiet("LLD-1", "STALLED", "N1_design", 120.0),
    ]


def test_a_call_is_stalled_only_when_its_worker_should_have_cut_it() -> None:
    harness = Harness(1, Limits(call_timeout=600.0))
    harness.take_lease("LLD-1")
    harness.advance_to(609.0)
    assert [event.level for event in harness.outputs(events.ItemQuiet)] == ["SLOW"]
    harness.advance_to(610.0)
    assert [event.level for event in harness.outputs(events.ItemQuiet)] == ["SLOW", "STALLED"]


def test_a_call_whose_tokens_arrive_is_neither_slow_nor_stalled() -> None:
    harness = Harness(1, Limits())
    harness.take_lease("LLD-1")
    for now in range(5, 1000, 5):
        harness.advance_to(float(now))
        harness.handle(events.CallProgress("LLD-1", now))
    assert harness.outputs(events.ItemQuiet) == []


def test_a_cut_is_reported_with_what_it_cost_and_counted() -> None:
    harness = Harness(1, Limits())
    refusal = Refusal(RefusalKind.CUT, "no token for 300 s, after 40 tokens")
    lease = harness.take_lease("LLD-1")
    harness.handle(events.LeaseReleased("LLD-1", lease, 300.0, Usage(1, 9, 40), refusal))
    (cut,) = harness.outputs(events.CallCut)
    assert (cut.item, cut.reason, cut.count, cut.usage) == ("LLD-1", refusal.reason, 1, Usage(1, 9, 40))
    assert [event.usage for event in harness.outputs(events.CallCompleted)] == [Usage(1, 9, 40)], "paid for"


def test_any_event_of_a_worker_ends_its_silence() -> None:
    harness = Harness(1, Limits())
    harness.start_worker("LLD-1")
    for now in (29.0, 58.0, 87.0):
        harness.advance_to(now)
        harness.handle(events.LineWritten("LLD-1", "still here"))
    assert harness.outputs(events.ItemQuiet) == []


def test_the_longest_call_decides_what_counts_as_silent() -> None:
    harness = Harness(1, Limits())
    harness.handle(events.LeaseReleased("LLD-1", harness.take_lease("LLD-1"), 20.0))
    harness.advance_to(79.9)
    assert harness.outputs(events.ItemQuiet) == []
    harness.advance_to(80.0)
    assert [event.level for event in harness.outputs(events.ItemQuiet)] == ["SLOW"]


def test_a_worker_that_does_not_exit_after_its_report_is_killed_and_its_report_counts() -> None:
    harness = Harness(1, Limits())
    harness.handle(events.WorkerReported("LLD-1", APPROVED))
    harness.advance_to(5.0)
    assert harness.outputs(KillWorker) == [KillWorker("LLD-1")]
    harness.handle(ended("LLD-1"))
    assert harness.outcome("LLD-1") is APPROVED


def test_a_heartbeat_is_published_each_minute() -> None:
    harness = Harness(1, Limits())
    harness.advance_to(180.0)
    assert harness.outputs(events.Heartbeat) == [events.Heartbeat(at) for at in (60.0, 120.0, 180.0)]


def test_usage_and_time_of_an_item_add_up_over_its_calls() -> None:
    harness = Harness(1, Limits())
    harness.start_worker("LLD-1")
    for _ in range(2):
        lease = harness.take_lease("LLD-1")
        harness.advance_to(harness.now + 3.0)
        harness.handle(events.LeaseReleased("LLD-1", lease, 3.0, Usage(1, 100, 20)))
    harness.report("LLD-1", APPROVED)
    (event,) = harness.outputs(events.ItemEnded)
    assert event.usage == Usage(2, 200, 40) and event.seconds == 6.0
