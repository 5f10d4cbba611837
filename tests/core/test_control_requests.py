"""Requests from another terminal."""

from agentos.core.protocol import events
from agentos.core.protocol.commands import FreezeWorker, GrantLease, KillWorker, StopWorker, ThawWorker
from agentos.core.protocol.results import Ending, Outcome, failed
from agentos.core.quota.budget import Limits

from .builders import keys
from .scheduler_harness import SchedulerHarness


def test_a_paused_run_grants_no_key_and_starts_nothing_until_it_is_resumed() -> None:
    run = SchedulerHarness(keys(4), 3, Limits(parallel=2))
    run.handle(events.PauseRequested())
    assert run.request("LLD-1") is None
    run.finish("LLD-2")
    assert run.started() == ["LLD-1", "LLD-2"]
    run.advance_to(9000.0)
    assert run.of(GrantLease) == [] and run.of(KillWorker) == [], "waiting in a pause is no fault of the item"
    run.handle(events.ResumeRequested())
    assert run.held("LLD-1") and run.started() == ["LLD-1", "LLD-2", "LLD-3"]
    assert run.of(events.RunResumed) == [events.RunResumed(8000.0)]
    assert run.of(events.LeaseGranted)[0].waited_seconds == 0.0, "it waited for a person, not for a key"


def test_pause_now_suspends_items_without_using_up_an_attempt() -> None:
    run = SchedulerHarness(keys(4), 1, Limits(retries=0))
    run.handle(events.PauseRequested(now=True))
    assert run.of(StopWorker) == [StopWorker("LLD-1")]
    run.finish("LLD-1", Outcome(Ending.INTERRUPTED))
    assert run.of(events.ItemSuspended) and not run.of(events.ItemEnded) and not run.of(events.RunEnded)
    run.handle(events.ResumeRequested())
    assert run.of(events.ItemStarted)[-1] == events.ItemStarted("LLD-1", 1, 2)
    run.finish("LLD-1")
    assert run.run.over and run.run.exit_code() == 0


def test_a_worker_that_does_not_exit_for_a_pause_is_killed_and_its_item_suspended() -> None:
    run = SchedulerHarness(keys(4), 1, Limits(retries=0))
    run.handle(events.PauseRequested(now=True))
    run.advance_to(1003.9)
    assert run.of(KillWorker) == []
    run.advance_to(1004.0)
    assert run.of(KillWorker) == [KillWorker("LLD-1")]
    run.handle(events.WorkerExited("LLD-1", "killed by SIGKILL", clean=False))
    assert run.of(events.ItemSuspended) and not run.of(events.ItemEnded)


def test_a_stop_ends_a_paused_run_with_everything_resumable() -> None:
    run = SchedulerHarness(keys(4), 2, Limits())
    run.handle(events.PauseRequested(now=True))
    run.finish("LLD-1", Outcome(Ending.INTERRUPTED))
    run.handle(events.StopRequested("SIGTERM"))
    assert [event.outcome.ending for event in run.of(events.ItemEnded)] == [Ending.INTERRUPTED] * 2
    assert run.run.over and run.run.exit_code() == 143


def test_only_a_failed_item_can_be_retried_and_it_gets_all_attempts_again() -> None:
    run = SchedulerHarness(keys(4), 2, Limits(parallel=2, retries=0))
    run.finish("LLD-1", failed("no"))
    run.handle(events.RetryRequested("LLD-1"))
    assert run.started() == ["LLD-1", "LLD-2", "LLD-1"]
    run.handle(events.RetryRequested("LLD-1"), events.RetryRequested("LLD-9"))
    run.finish("LLD-1")
    run.handle(events.RetryRequested("LLD-1"))
    declined = run.of(events.RequestDeclined)
    assert [one.exit_code for one in declined] == [2, 5, 2]
    run.finish("LLD-2")
    assert run.run.exit_code() == 0, "what failed first has a verdict now"


def test_more_workers_take_effect_at_once_and_fewer_as_items_end() -> None:
    run = SchedulerHarness(keys(4), 5, Limits())
    run.handle(events.WorkerCountRequested(3))
    assert run.started() == ["LLD-1", "LLD-2", "LLD-3"]
    run.handle(events.WorkerCountRequested(1))
    run.finish("LLD-1")
    run.finish("LLD-2")
    assert run.started() == ["LLD-1", "LLD-2", "LLD-3"]
    run.finish("LLD-3")
    assert run.started()[-1] == "LLD-4" and len(run.started()) == 4
    run.handle(events.WorkerCountRequested(99), events.WorkerCountRequested(-1))
    assert run.of(events.WorkerCountChanged)[-1] == events.WorkerCountChanged(10, 1)
    assert run.of(events.RequestDeclined)[-1].exit_code == 2


def test_suspended_time_counts_towards_no_timeout() -> None:
    run = SchedulerHarness(keys(4), 1, Limits(timeout=100.0))
    run.handle(events.WorkerStarted("LLD-1", 4711))
    run.handle(events.RunSuspended())
    assert run.of(FreezeWorker) == [FreezeWorker("LLD-1")]
    run.now += 500.0
    run.handle(events.RunContinued(500.0))
    assert run.of(ThawWorker) == [ThawWorker("LLD-1")] and run.of(KillWorker) == []
    run.advance_to(1599.0)
    assert run.of(KillWorker) == []
    run.advance_to(1600.0)
    assert run.of(KillWorker) == [KillWorker("LLD-1")]


def test_the_reason_for_declining_an_unchanged_number_of_workers_agrees_with_it_in_number() -> None:
    for workers, expected in ((1, "the run already has 1 worker"), (2, "the run already has 2 workers")):
        run = SchedulerHarness(keys(4), 3, Limits(parallel=workers))
        run.handle(events.WorkerCountRequested(workers))
        assert run.of(events.RequestDeclined)[0].reason == expected
