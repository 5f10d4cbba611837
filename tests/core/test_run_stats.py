"""Statistics of a run, computed from its events."""

import pytest

from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome, Usage, Verdict, failed
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.core.run_state.run_stats import RunStats, bar


@pytest.mark.parametrize(
    ("done", "total", "shown"),
    [
        (0, 10, "[>         ]"),
        (5, 10, "[=====>    ]"),
        (9, 10, "[=========>]"),
        (10, 10, "[==========]"),
        (1, 3, "[===>      ]"),
        (499, 500, "[=========>]"),
        (0, 0, "[==========]"),
    ],
)
def test_the_bar_has_ten_cells(done: int, total: int, shown: str) -> None:
    assert bar(done, total) == shown


def stats_of(*received: events.Event) -> RunStats:
    found = RunStats()
    started = events.RunStarted("run-1", "lld", "/p", ("LLD-1", "LLD-2", "LLD-3"), 2, ("key-1",))
    for at, event in enumerate((started, *received)):
        found.handle(event, float(at))
    return found


def ended(item: str, outcome: Outcome) -> events.ItemEnded:
    return events.ItemEnded(item, outcome, 12.5, Usage(3, 100, 20), 1)


def test_items_that_ended_count_and_interrupted_ones_do_not() -> None:
    found = stats_of(
        ended("LLD-1", Outcome(Ending.FINISHED, Verdict.APPROVED, 2)),
        ended("LLD-2", failed("Invalid spec format")),
        ended("LLD-3", Outcome(Ending.INTERRUPTED)),
    )
    assert found.over == 2
    assert [row.status for row in found.rows.values()] == ["approved", "failed", "interrupted"]
    assert [row.item for row in found.with_verdict(Verdict.APPROVED)] == ["LLD-1"]
    assert found.usage == Usage(9, 300, 60)


def test_an_item_runs_between_its_start_and_its_end() -> None:
    start = events.ItemStarted("LLD-1", 1, 1)
    assert [row.item for row in stats_of(start).running] == ["LLD-1"]
    assert stats_of(start, ended("LLD-1", Outcome(Ending.PARKED))).running == []
    assert stats_of(start, events.ItemRetried("LLD-1", "crash", 2, 3, 1.0)).running == []


def test_a_key_is_held_from_grant_to_release() -> None:
    grant = events.LeaseGranted("LLD-1", "key-1", "lease-1", 0.0)
    back = events.LeaseReleased("LLD-1", "lease-1", 2.5, Usage(1, 10, 5))
    assert stats_of(grant).held == {"lease-1": "key-1"}
    found = stats_of(grant, back)
    assert found.held == {} and found.rows["LLD-1"].usage == Usage(1, 10, 5)


def test_a_killed_worker_holds_no_key() -> None:
    found = stats_of(
        events.LeaseGranted("LLD-1", "key-1", "lease-1", 0.0),
        events.LeaseGranted("LLD-2", "key-2", "lease-2", 0.0),
        events.WorkerExited("LLD-1", "killed by SIGKILL", clean=False),
    )
    assert found.held == {"lease-2": "key-2"}


def test_an_item_held_by_another_run_counts_as_idle_until_it_is_checked_again() -> None:
    """It goes back to the end of the queue without a word of the run."""
    looked = (
        events.ItemStarted("LLD-1", 1, 1),
        events.WorkerStarted("LLD-1", 4711),
        events.WorkerReported("LLD-1", Outcome(Ending.HELD_BY_OTHER_RUN)),
        events.WorkerExited("LLD-1", "exit 0", clean=True),
    )
    found = stats_of(*looked, events.ItemStarted("LLD-2", 1, 1))
    assert [row.item for row in found.running] == ["LLD-2"] and found.rows["LLD-1"].status == "waiting"
    late = (events.ItemStarted("LLD-1", 1, 1), events.WorkerStartFailed("LLD-1", "no more processes"))
    assert stats_of(*late).running == [] and stats_of(*late, late[0]).running != []


def test_an_item_that_waits_for_a_retry_keeps_its_time() -> None:
    first = (
        events.ItemStarted("LLD-1", 1, 1),
        events.WorkerStarted("LLD-1", 4711),
        events.NodeStarted("LLD-1", "N1_design", 1),
        events.WorkerExited("LLD-1", "killed by SIGKILL", clean=False),
    )
    again = (events.ItemStarted("LLD-1", 1, 2), events.WorkerStarted("LLD-1", 4712))
    for between in (events.ItemSuspended("LLD-1"), events.ItemRetried("LLD-1", "killed", 2, 3, 1.0)):
        waiting, running = stats_of(*first, between), stats_of(*first, between, *again)
        assert waiting.rows["LLD-1"].age(99.0) == 2.0 and not waiting.rows["LLD-1"].running
        assert running.rows["LLD-1"].age(10.0) == 2.0 + 10.0 - 7.0
    over = stats_of(*first, again[0], ended("LLD-1", Outcome(Ending.FINISHED)))
    assert over.rows["LLD-1"].age(99.0) == 12.5, "at its end, what the run itself has counted"


def test_item_time_stops_during_ctrl_z() -> None:
    received = (
        events.ItemStarted("LLD-1", 1, 1),
        events.WorkerStarted("LLD-1", 4711),
        events.RunSuspended(),
    )
    asleep = stats_of(*received)
    assert asleep.rows["LLD-1"].age(asleep.item_clock(1000.0)) == 1.0
    asleep.handle(events.RunContinued(997.0), 1000.0)
    assert asleep.rows["LLD-1"].age(asleep.item_clock(1001.0)) == 2.0


def test_ctrl_z_during_a_pause_counts_once() -> None:
    found = stats_of(events.RunPaused(), events.RunSuspended(), events.RunContinued(1.0))
    assert found.paused_seconds == 0.0 and found.paused_since == 1.0, "it is paused on"
    found.handle(events.RunResumed(10.0), 11.0)
    assert found.paused_seconds == 10.0 and found.paused_since is None


def test_a_run_without_workers_has_no_warm_up_time() -> None:
    assert stats_of(ended("LLD-1", Outcome(Ending.INTERRUPTED))).warm_up is None
    assert stats_of(events.WorkerStarted("LLD-1", 4711), events.WorkerStarted("LLD-2", 4712)).warm_up == 1.0


def test_refusals_are_counted_when_a_key_cools_down() -> None:
    refused = events.LeaseReleased("LLD-1", "lease-1", 0.1, refusal=Refusal(RefusalKind.RATE_LIMITED, "429"))
    found = stats_of(
        refused, events.KeyLimited("key-1", 60.0, "429"), events.KeyExhausted("key-1", 9000.0, "429")
    )
    assert found.refusals == 2
