"""Rate limits, on a clock that the test moves."""

import pytest

from agentos.core.constants import DAY
from agentos.offline.rate_limits import BucketLimiter, OfflineLimits, Spending, parse_limits
from agentos.offline.rate_windows import WindowKind
from agentos.offline.vendors.neutral import Gauge, Quota, Violation

NOW = 1_800_000_000.0


def admitted(limiter: BucketLimiter, times: list[float]) -> list[bool]:
    return [not limiter.admit(now) for now in times]


def over(limiter: BucketLimiter, now: float, spending: Spending) -> list[Quota]:
    return [violation.quota for violation in limiter.admit(now, spending)]


def test_a_sliding_window_admits_again_when_the_oldest_call_leaves_it() -> None:
    limiter = BucketLimiter(OfflineLimits(rate=2, seconds=10))
    assert admitted(limiter, [100, 104, 105, 109.9, 110, 113]) == [True, True, False, False, True, False]


def test_a_fixed_window_resets_with_the_clock() -> None:
    limiter = BucketLimiter(OfflineLimits(rate=2, seconds=60, window=WindowKind.FIXED))
    assert admitted(limiter, [118, 119, 119.9, 120]) == [True, True, False, True]


def test_a_token_bucket_refills_at_a_constant_rate() -> None:
    limiter = BucketLimiter(OfflineLimits(rate=60, seconds=60, window=WindowKind.BUCKET, burst=1))
    assert admitted(limiter, [100, 100.5, 101, 101.5]) == [True, False, True, False]


@pytest.mark.parametrize("window", list(WindowKind))
@pytest.mark.parametrize("limits", [{"rate": 3}, {"tokens": 100}, {"rate": 1000, "input_tokens": 73}])
def test_a_caller_that_waits_as_told_is_admitted(window: WindowKind, limits: dict[str, int]) -> None:
    limiter = BucketLimiter(OfflineLimits(seconds=7, window=window, **limits))  # type: ignore[arg-type]
    now, spending = NOW, Spending(31)
    for _ in range(100):
        refused = limiter.admit(now, spending)
        now += max((violation.wait or 0.0 for violation in refused), default=0.01)
        assert not refused or not limiter.admit(now, spending)


@pytest.mark.parametrize("window", list(WindowKind))
def test_no_window_admits_more_than_its_limit(window: WindowKind) -> None:
    limiter = BucketLimiter(OfflineLimits(tokens=100, seconds=10, window=window))
    spent = sum(10 for tick in range(1000) if not limiter.admit(NOW + tick * 0.1, Spending(10)))
    assert 950 <= spent <= 1100


def test_a_daily_quota_resets_at_midnight_pacific() -> None:
    limiter, midnight = BucketLimiter(OfflineLimits(per_day=1)), 100 * DAY + 8 * 3600
    assert admitted(limiter, [midnight - 2, midnight - 1, midnight]) == [True, False, True]


def test_the_concurrency_limit_counts_running_calls() -> None:
    limiter = BucketLimiter(OfflineLimits(concurrency=1))
    with limiter.running():
        assert limiter.admit(1) == (Violation(Quota.CONCURRENCY, 1),)
    assert limiter.admit(2) == ()


def test_every_exceeded_limit_is_returned() -> None:
    limiter = BucketLimiter(OfflineLimits(rate=1, per_day=1, input_tokens=10))
    limiter.admit(NOW, Spending(10))
    assert over(limiter, NOW, Spending(5)) == [Quota.REQUESTS, Quota.INPUT_TOKENS, Quota.DAY]


def test_reserved_tokens_count_at_once_and_are_not_refunded() -> None:
    limiter = BucketLimiter(OfflineLimits(tokens=100))
    limiter.admit(NOW, Spending(10, 80))
    limiter.add_output(NOW, 20 - 80)
    assert over(limiter, NOW, Spending(10, 1)) == [Quota.TOKENS]
    assert over(limiter, NOW, Spending(10)) == []


def test_unreserved_tokens_count_when_written_even_beyond_the_limit() -> None:
    limiter = BucketLimiter(OfflineLimits(output_tokens=100, window=WindowKind.BUCKET))
    assert limiter.admit(NOW) == ()
    limiter.add_output(NOW, 150)
    (violation,) = limiter.admit(NOW)
    assert violation.wait == pytest.approx(51 * 60 / 100)
    assert limiter.gauges(NOW)[0].remaining == 0


@pytest.mark.parametrize("window", list(WindowKind))
def test_a_call_larger_than_the_limit_is_never_admitted(window: WindowKind) -> None:
    limiter = BucketLimiter(OfflineLimits(tokens=100, window=window))
    assert all(limiter.admit(NOW + n * 100, Spending(101)) for n in range(5))
    assert not limiter.admit(NOW + 500, Spending(100))


@pytest.mark.parametrize("window", [WindowKind.SLIDING, WindowKind.BUCKET])
def test_refused_calls_count_if_configured(window: WindowKind) -> None:
    limits = OfflineLimits(rate=10, seconds=10, window=window, counts_refused=True)
    hammered = BucketLimiter(limits)
    assert sum(not hammered.admit(NOW + n * 0.5) for n in range(400)) < 40
    assert not hammered.admit(NOW + 200 + 2 * limits.seconds)


def test_a_gauge_has_the_remaining_amount_and_the_reset_time() -> None:
    limiter = BucketLimiter(OfflineLimits(rate=5, seconds=60))
    limiter.admit(NOW)
    limiter.admit(NOW + 10)
    assert limiter.gauges(NOW + 10) == (Gauge(Quota.REQUESTS, 5, 3, NOW + 70),)
    assert limiter.gauges(NOW + 70) == (Gauge(Quota.REQUESTS, 5, 5, NOW + 70),)


def test_limits_are_read_on_top_of_the_defaults() -> None:
    named = parse_limits(
        "key-1:rpm=5,tpm=none,otpm=7,window=fixed,seconds=0.5", OfflineLimits(rate=9, tokens=8)
    )
    assert named.name == "key-1"
    assert named.limits == OfflineLimits(rate=5, output_tokens=7, window=WindowKind.FIXED, seconds=0.5)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rpm=5", "KEY:LIMIT=VALUE"),
        ("key-1:", "KEY:LIMIT=VALUE"),
        ("key-1:speed=5", "expected one of rpm, rpd, tpm"),
        ("key-1:rpm=0", "positive number or none"),
        ("key-1:rpm=many", "positive number or none"),
        ("key-1:seconds=inf", "positive number or none"),
        ("key-1:window=oval", "sliding, fixed, bucket"),
    ],
)
def test_a_wrong_limit_is_explained(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_limits(text, OfflineLimits())
