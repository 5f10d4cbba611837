"""How long a run will still take, told from how far it has come."""

import pytest

from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome, Usage, Verdict
from agentos.core.run_state.eta import Estimate, estimate
from agentos.core.run_state.run_stats import RunStats

ITEMS = tuple(f"LLD-{number}" for number in range(1, 7))
FINISHED = Outcome(Ending.FINISHED, Verdict.APPROVED, 1)


def tally(*heard: tuple[float, events.Event]) -> RunStats:
    found = RunStats()
    found.handle(events.RunStarted("r", "lld", "/p", ITEMS, 2, ("key-1",)), 0.0)
    for at, event in heard:
        found.handle(event, at)
    return found


def started(item: str, at: float) -> tuple[float, events.Event]:
    return at, events.ItemStarted(item, 1, 1)


def cost(item: str, at: float, dollars: float | None) -> tuple[float, events.Event]:
    return at, events.CallCompleted(item, "key-1", "m", Usage(1, 1, 1), dollars)


def ended(item: str, at: float, outcome: Outcome = FINISHED) -> tuple[float, events.Event]:
    return at, events.ItemEnded(item, outcome, 10.0, Usage(), 1)


def test_nothing_is_known_before_the_first_item_has_finished() -> None:
    assert estimate(tally(started("LLD-1", 0.0)), 5.0) == Estimate(None, None)


def test_what_runs_is_part_of_the_way_and_the_rest_is_like_what_finished() -> None:
    found = tally(
        started("LLD-1", 0.0), cost("LLD-1", 9.0, 0.5), ended("LLD-1", 10.0),
        started("LLD-2", 10.0), started("LLD-3", 10.0),
    )  # fmt: skip
    projection = estimate(found, 14.0)
    assert projection.seconds_left == pytest.approx((3 * 10 + 2 * 6) / 2)
    assert projection.cost == pytest.approx(3.0)


def test_an_item_that_takes_longer_than_usual_is_never_taken_for_done() -> None:
    found = tally(started("LLD-1", 0.0), ended("LLD-1", 10.0), started("LLD-2", 10.0))
    assert estimate(found, 1000.0).seconds_left == pytest.approx((4 * 10 + 1) / 2)


def test_with_fewer_keys_than_workers_it_takes_as_long_as_its_pace_says() -> None:
    call = events.LeaseReleased("LLD-2", "lease-2", 5.0, Usage(1, 1, 1))
    first = events.ItemEnded("LLD-1", FINISHED, 10.0, Usage(2, 2, 2), 1)
    found = tally(started("LLD-1", 0.0), started("LLD-2", 0.0), (9.0, call), (10.0, first))
    assert estimate(found, 10.0).seconds_left == pytest.approx(4.5 * 10 / 1.5), (
        "one and a half in ten seconds"
    )


def test_the_time_of_a_pause_is_no_part_of_the_pace() -> None:
    first = events.ItemEnded("LLD-1", FINISHED, 10.0, Usage(2, 2, 2), 1)
    heard = (started("LLD-1", 0.0), (10.0, first), started("LLD-2", 10.0))
    before = estimate(tally(*heard), 10.0)
    paused = ((10.0, events.RunPaused(False)), (3610.0, events.RunResumed(3600.0)))
    assert estimate(tally(*heard[:2], *paused, started("LLD-2", 3610.0)), 3610.0) == before


@pytest.mark.parametrize("pause", [events.RunPaused(), events.RunSuspended()])
def test_while_the_run_stands_still_the_time_left_does_too(pause: events.Event) -> None:
    first = events.ItemEnded("LLD-1", FINISHED, 10.0, Usage(2, 2, 2), 1)
    found = tally(started("LLD-1", 0.0), (10.0, first), started("LLD-2", 10.0), (12.0, pause))
    before = estimate(found, 12.0)
    assert before.seconds_left and estimate(found, 600.0) == before


def test_what_an_item_did_before_its_next_try_is_part_of_the_way() -> None:
    crash = events.WorkerExited("LLD-2", "killed", clean=False)
    once = (started("LLD-1", 0.0), ended("LLD-1", 10.0), started("LLD-2", 10.0))
    again = (*once, (14.0, crash), started("LLD-2", 20.0))
    assert estimate(tally(*again), 22.0).seconds_left == estimate(tally(*once), 16.0).seconds_left


def test_at_the_end_nothing_is_left_and_the_cost_is_what_was_spent() -> None:
    found = tally(*((cost(item, 1.0, 0.25)) for item in ITEMS), *((ended(item, 2.0)) for item in ITEMS))
    assert estimate(found, 2.0) == Estimate(0.0, 1.5)


def test_without_a_price_only_the_time_is_known() -> None:
    found = tally(started("LLD-1", 0.0), cost("LLD-1", 1.0, None), ended("LLD-1", 10.0))
    assert estimate(found, 10.0).cost is None and estimate(found, 10.0).seconds_left == 25.0
