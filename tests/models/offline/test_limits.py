"""Limits on a clock that the test moves."""

import pytest

from agentos.models.offline.limits import DAY, Limits, Meter, Quota, Window


def admitted(meter: Meter, times: list[float]) -> list[bool]:
    return [meter.ask(now) is None for now in times]


def test_a_sliding_window_admits_again_when_the_oldest_call_leaves_it() -> None:
    meter = Meter(Limits(rate=2, seconds=10))
    assert admitted(meter, [100, 104, 105, 109.9, 110, 113]) == [True, True, False, False, True, False]


def test_a_fixed_window_begins_anew_with_the_clock() -> None:
    meter = Meter(Limits(rate=2, seconds=60, window=Window.FIXED))
    assert admitted(meter, [118, 119, 119.9, 120]) == [True, True, False, True]


def test_a_token_bucket_fills_evenly() -> None:
    meter = Meter(Limits(rate=60, seconds=60, window=Window.BUCKET, burst=1))
    assert admitted(meter, [100, 100.5, 101, 101.5]) == [True, False, True, False]


@pytest.mark.parametrize("window", list(Window))
def test_whoever_waits_as_told_is_admitted(window: Window) -> None:
    meter, now = Meter(Limits(rate=3, seconds=7, window=window)), 1000.0
    for _ in range(50):
        over = meter.ask(now)
        now += over.wait if over else 0.01
        assert over is None or meter.ask(now) is None


def test_a_days_quota_is_back_after_midnight_pacific() -> None:
    meter, midnight = Meter(Limits(per_day=1)), 100 * DAY + 8 * 3600
    assert admitted(meter, [midnight - 2, midnight - 1, midnight]) == [True, False, True]


def test_concurrency_counts_who_is_inside() -> None:
    meter = Meter(Limits(concurrency=1))
    with meter.inside():
        over = meter.ask(1)
        assert over is not None and over.quota is Quota.CONCURRENCY
    assert meter.ask(2) is None
