"""Limits on a clock that the test moves."""

import pytest

from agentos.core.constants import DAY
from agentos.offline.limits.limiter import BucketLimiter, OfflineLimits, Spending
from agentos.offline.limits.parse import parse_limits
from agentos.offline.limits.windows import WindowKind
from agentos.offline.vendors.neutral import Gauge, Quota, Violation

NOW = 1_800_000_000.0


def admitted(meter: BucketLimiter, times: list[float]) -> list[bool]:
    return [not meter.ask(now) for now in times]


def over(meter: BucketLimiter, now: float, spending: Spending) -> list[Quota]:
    return [violation.quota for violation in meter.ask(now, spending)]


def test_a_sliding_window_admits_again_when_the_oldest_call_leaves_it() -> None:
    meter = BucketLimiter(OfflineLimits(rate=2, seconds=10))
    assert admitted(meter, [100, 104, 105, 109.9, 110, 113]) == [True, True, False, False, True, False]


def test_a_fixed_window_begins_anew_with_the_clock() -> None:
    meter = BucketLimiter(OfflineLimits(rate=2, seconds=60, window=WindowKind.FIXED))
    assert admitted(meter, [118, 119, 119.9, 120]) == [True, True, False, True]


def test_a_token_bucket_fills_evenly() -> None:
    meter = BucketLimiter(OfflineLimits(rate=60, seconds=60, window=WindowKind.BUCKET, burst=1))
    assert admitted(meter, [100, 100.5, 101, 101.5]) == [True, False, True, False]


@pytest.mark.parametrize("window", list(WindowKind))
@pytest.mark.parametrize("limits", [{"rate": 3}, {"tokens": 100}, {"rate": 1000, "input_tokens": 73}])
def test_whoever_waits_as_told_is_admitted(window: WindowKind, limits: dict[str, int]) -> None:
    meter, now, spending = BucketLimiter(OfflineLimits(seconds=7, window=window, **limits)), NOW, Spending(31)  # type: ignore[arg-type]
    for _ in range(100):
        refused = meter.ask(now, spending)
        now += max((violation.wait or 0.0 for violation in refused), default=0.01)
        assert not refused or not meter.ask(now, spending)


@pytest.mark.parametrize("window", list(WindowKind))
def test_no_window_lets_more_through_than_its_limit(window: WindowKind) -> None:
    meter = BucketLimiter(OfflineLimits(tokens=100, seconds=10, window=window))
    spent = sum(10 for tick in range(1000) if not meter.ask(NOW + tick * 0.1, Spending(10)))
    assert 950 <= spent <= 1100


def test_a_days_quota_is_back_after_midnight_pacific() -> None:
    meter, midnight = BucketLimiter(OfflineLimits(per_day=1)), 100 * DAY + 8 * 3600
    assert admitted(meter, [midnight - 2, midnight - 1, midnight]) == [True, False, True]


def test_concurrency_counts_who_is_inside() -> None:
    meter = BucketLimiter(OfflineLimits(concurrency=1))
    with meter.inside():
        assert meter.ask(1) == (Violation(Quota.CONCURRENCY, 1),)
    assert meter.ask(2) == ()


def test_every_limit_that_a_call_is_over_is_named() -> None:
    meter = BucketLimiter(OfflineLimits(rate=1, per_day=1, input_tokens=10))
    meter.ask(NOW, Spending(10))
    assert over(meter, NOW, Spending(5)) == [Quota.REQUESTS, Quota.INPUT_TOKENS, Quota.DAY]


def test_what_is_reserved_counts_at_once_and_is_not_given_back() -> None:
    meter = BucketLimiter(OfflineLimits(tokens=100))
    meter.ask(NOW, Spending(10, 80))
    meter.written(NOW, 20 - 80)
    assert over(meter, NOW, Spending(10, 1)) == [Quota.TOKENS]
    assert over(meter, NOW, Spending(10)) == []


def test_what_is_not_reserved_counts_once_it_is_written_even_into_debt() -> None:
    meter = BucketLimiter(OfflineLimits(output_tokens=100, window=WindowKind.BUCKET))
    assert meter.ask(NOW) == ()
    meter.written(NOW, 150)
    (violation,) = meter.ask(NOW)
    assert violation.wait == pytest.approx(51 * 60 / 100)
    assert meter.gauges(NOW)[0].remaining == 0


@pytest.mark.parametrize("window", list(WindowKind))
def test_a_call_larger_than_the_limit_is_never_admitted(window: WindowKind) -> None:
    meter = BucketLimiter(OfflineLimits(tokens=100, window=window))
    assert all(meter.ask(NOW + n * 100, Spending(101)) for n in range(5))
    assert not meter.ask(NOW + 500, Spending(100))


@pytest.mark.parametrize("window", [WindowKind.SLIDING, WindowKind.BUCKET])
def test_refused_calls_count_if_told_so(window: WindowKind) -> None:
    limits = OfflineLimits(rate=10, seconds=10, window=window, refused_count=True)
    hammered = BucketLimiter(limits)
    assert sum(not hammered.ask(NOW + n * 0.5) for n in range(400)) < 40
    assert not hammered.ask(NOW + 200 + 2 * limits.seconds)


def test_a_gauge_tells_what_is_left_and_when_it_is_whole_again() -> None:
    meter = BucketLimiter(OfflineLimits(rate=5, seconds=60))
    meter.ask(NOW)
    meter.ask(NOW + 10)
    assert meter.gauges(NOW + 10) == (Gauge(Quota.REQUESTS, 5, 3, NOW + 70),)
    assert meter.gauges(NOW + 70) == (Gauge(Quota.REQUESTS, 5, 5, NOW + 70),)


def test_limits_are_read_on_top_of_the_usual_ones() -> None:
    named = parse_limits(
        "key-1:rpm=5,tpm=none,otpm=7,window=fixed,seconds=0.5", OfflineLimits(rate=9, tokens=8)
    )
    assert named.name == "key-1"
    assert named.limits == OfflineLimits(rate=5, output_tokens=7, window=WindowKind.FIXED, seconds=0.5)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rpm=5", "KEY:WORD=VALUE"),
        ("key-1:", "KEY:WORD=VALUE"),
        ("key-1:speed=5", "words are rpm, rpd, tpm"),
        ("key-1:rpm=0", "positive number or none"),
        ("key-1:rpm=many", "positive number or none"),
        ("key-1:seconds=inf", "positive number or none"),
        ("key-1:window=oval", "sliding, fixed, bucket"),
    ],
)
def test_a_wrong_limit_is_explained(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_limits(text, OfflineLimits())
