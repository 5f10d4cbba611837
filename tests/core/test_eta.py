"""Estimates of the remaining time and cost of a run."""

import pytest

from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome, Usage, Verdict
from agentos.core.run_state.eta import Estimate, estimate
from agentos.core.run_state.run_stats import RunStats

ITEMS = tuple(f"LLD-{number}" for number in range(1, 7))
FINISHED = Outcome(Ending.FINISHED, Verdict.APPROVED, 1)


def stats_of(*received: tuple[float, events.Event]) -> RunStats:
    found = RunStats()
    found.handle(events.RunStarted("r", "lld", "/p", ITEMS, 2, ("key-1",)), 0.0)
    for at, event in received:
        found.handle(event, at)
    return found


def started(item: str, at: float) -> tuple[float, events.Event]:
    return at, events.ItemStarted(item, 1, 1)


def cost(item: str, at: float, dollars: float | None) -> tuple[float, events.Event]:
    return at, events.CallCompleted(item, "key-1", "m", Usage(1, 1, 1), dollars)


def ended(item: str, at: float, outcome: Outcome = FINISHED) -> tuple[float, events.Event]:
    return at, events.ItemEnded(item, outcome, 10.0, Usage(), 1)


def test_nothing_is_known_before_the_first_item_has_finished() -> None:
    assert estimate(stats_of(started("LLD-1", 0.0)), 5.0) == Estimate(None, None)


def test_running_items_count_in_part_and_the_others_like_finished_ones() -> None:
    found = stats_of(
        started("LLD-1", 0.0), cost("LLD-1", 9.0, 0.5), ended("LLD-1", 10.0),
        started("LLD-2", 10.0), started("LLD-3", 10.0),
    )  # fmt: skip
    projection = estimate(found, 14.0)
    assert projection.seconds_left == pytest.approx((3 * 10 + 2 * 6) / 2)
    assert projection.cost == pytest.approx(3.0)


def test_other_runs_are_expected_to_take_their_share_of_the_rest() -> None:
    elsewhere = Outcome(Ending.FINISHED_BY_OTHER_RUN, Verdict.APPROVED)
    skipped = (10.0, events.ItemEnded("LLD-2", elsewhere, 0.0, Usage(), 0))
    own = (started("LLD-1", 0.0), cost("LLD-1", 9.0, 0.5), ended("LLD-1", 10.0))
    found = estimate(stats_of(*own, skipped), 10.0)
    assert found.seconds_left == pytest.approx(4 / 2 * 10 / 2), "half of the four, on two workers"
    assert found.cost == pytest.approx(0.5 * 3)


def test_machines_that_join_a_fleet_count_as_soon_as_they_run_items() -> None:
    found = RunStats()
    found.handle(events.RunStarted("r", "lld", "/p", ITEMS, 0, (), machines=0), 0.0)
    for at, event in (started("LLD-1", 0.0), ended("LLD-1", 10.0)):
        found.handle(event, at)
    assert estimate(found, 10.0).seconds_left == pytest.approx(50), "as if by one worker"
    for item in ITEMS[1:]:
        found.handle(started(item, 10.0)[1], 10.0)
    assert estimate(found, 10.0).seconds_left == pytest.approx(10), "by the five that run them"


def test_an_item_that_takes_longer_than_usual_never_counts_as_done() -> None:
    found = stats_of(started("LLD-1", 0.0), ended("LLD-1", 10.0), started("LLD-2", 10.0))
    assert estimate(found, 1000.0).seconds_left == pytest.approx(990 / 4), "it may take a quarter longer"


def test_calls_of_an_earlier_run_are_no_sign_of_a_fast_one() -> None:
    """After a resume, LLD-1 needed only its last call; the others start from the beginning."""
    received = [
        started("LLD-1", 0.0),
        (0.0, events.LeaseRequested("LLD-1", "review-2", ("gemini",), calls_done=3)),
        (0.0, events.LeaseGranted("LLD-1", "key-1", "lease-1", 0.0)),
        (5.0, events.LeaseReleased("LLD-1", "lease-1", 5.0, Usage(1, 1, 1))),
        (5.0, events.ItemEnded("LLD-1", FINISHED, 5.0, Usage(1, 1, 1), 1)),
    ]
    found = estimate(stats_of(*received), 5.0).seconds_left
    assert found == pytest.approx(5 * 4 * 5.0), "five items, four calls each, one call in five seconds so far"


def test_near_the_end_an_item_is_compared_with_those_that_needed_as_many_calls() -> None:
    found = RunStats()
    found.handle(events.RunStarted("r", "lld", "/p", ITEMS, 6, tuple(f"key-{n}" for n in range(6))), 0.0)
    for item, calls in zip(ITEMS, (2, 2, 2, 2, 6, 2), strict=True):
        found.handle(events.ItemStarted(item, 1, 1), 0.0)
        for call in range(calls):
            at = 5.0 * (call + 1)
            found.handle(events.LeaseReleased(item, f"{item}-{call}", 5.0, Usage(1, 1, 1)), at)
        if item != ITEMS[-1]:
            found.handle(events.ItemEnded(item, FINISHED, 5.0 * calls, Usage(calls, calls, calls), 1), at)
    left = estimate(found, 10.0).seconds_left
    assert left is not None and left >= 4 * 5.0, (
        "it is in its second round, as the one that needed six calls was"
    )
    late = estimate(found, 60.0).seconds_left
    assert late is not None and late >= 10.0, "a call that takes ten times as long is not about to end"


def test_while_every_item_waits_for_keys_that_cool_down_the_wait_counts() -> None:
    received = [started("LLD-1", 0.0), ended("LLD-1", 10.0), started("LLD-2", 10.0)]
    before = estimate(stats_of(*received), 12.0).seconds_left
    limited: list[tuple[float, events.Event]] = [
        (12.0, events.LeaseRequested("LLD-2", "draft-1", ("gemini",))),
        (12.0, events.KeyLimited("key-1", 60.0, "429")),
    ]
    after = estimate(stats_of(*received, *limited), 12.0).seconds_left
    assert before is not None and after == pytest.approx(before + 60.0)


def test_with_fewer_keys_than_workers_the_estimate_follows_the_throughput() -> None:
    call = events.LeaseReleased("LLD-2", "lease-2", 5.0, Usage(1, 1, 1))
    first = events.ItemEnded("LLD-1", FINISHED, 10.0, Usage(2, 2, 2), 1)
    found = stats_of(started("LLD-1", 0.0), started("LLD-2", 0.0), (9.0, call), (10.0, first))
    assert estimate(found, 10.0).seconds_left == pytest.approx(4.5 * 10 / 1.5), (
        "one and a half in ten seconds"
    )


def test_a_pause_does_not_lower_the_throughput() -> None:
    first = events.ItemEnded("LLD-1", FINISHED, 10.0, Usage(2, 2, 2), 1)
    received = (started("LLD-1", 0.0), (10.0, first), started("LLD-2", 10.0))
    before = estimate(stats_of(*received), 10.0)
    paused = ((10.0, events.RunPaused(False)), (3610.0, events.RunResumed(3600.0)))
    assert estimate(stats_of(*received[:2], *paused, started("LLD-2", 3610.0)), 3610.0) == before


@pytest.mark.parametrize("pause", [events.RunPaused(), events.RunSuspended()])
def test_while_the_run_is_paused_the_time_left_does_not_change(pause: events.Event) -> None:
    first = events.ItemEnded("LLD-1", FINISHED, 10.0, Usage(2, 2, 2), 1)
    found = stats_of(started("LLD-1", 0.0), (10.0, first), started("LLD-2", 10.0), (12.0, pause))
    before = estimate(found, 12.0)
    assert before.seconds_left and estimate(found, 600.0) == before


def test_work_before_a_retry_counts_as_progress() -> None:
    crash = events.WorkerExited("LLD-2", "killed", clean=False)
    once = (started("LLD-1", 0.0), ended("LLD-1", 10.0), started("LLD-2", 10.0))
    again = (*once, (14.0, crash), started("LLD-2", 20.0))
    assert estimate(stats_of(*again), 22.0).seconds_left == estimate(stats_of(*once), 16.0).seconds_left


def test_at_the_end_no_time_is_left_and_the_cost_is_what_was_spent() -> None:
    found = stats_of(*((cost(item, 1.0, 0.25)) for item in ITEMS), *((ended(item, 2.0)) for item in ITEMS))
    assert estimate(found, 2.0) == Estimate(0.0, 1.5)


def test_without_a_price_only_the_time_is_known() -> None:
    found = stats_of(started("LLD-1", 0.0), cost("LLD-1", 1.0, None), ended("LLD-1", 10.0))
    assert estimate(found, 10.0).cost is None and estimate(found, 10.0).seconds_left == 25.0
