"""Finding out whether a provider that states no limit counts requests or tokens."""

import pytest

from agentos.core.ratelimit.limiter import RateLimiter
from agentos.core.ratelimit.limits import CallCost, Dimension, Rate
from agentos.core.ratelimit.provider_profile import CountingErrors, ProviderProfile
from agentos.core.ratelimit.token_rate_estimator import TokenRateEstimator
from agentos.core.ratelimit.windows import Reservation, TokenBucket

START = 1000.0


def call(at: float, tokens: int, *, refused: bool = False) -> Reservation:
    return Reservation(at, CallCost(tokens), refused=refused, settled=not refused)


def test_the_rate_is_what_was_admitted_between_two_openings() -> None:
    estimator = TokenRateEstimator()
    first, last = call(START, 500, refused=True), call(START + 3.0, 300, refused=True)
    sent = [call(START - 0.1, 900), first, call(START + 1.0, 200), call(START + 2.0, 1000), last]
    assert estimator.record_refusal(sent, first, START + 0.5, paced=False) is None
    assert estimator.record_refusal(sent, last, START + 4.5, paced=False) is None, (
        "there is nothing to compare with yet"
    )
    assert estimator.per_second == pytest.approx((200 + 1000 + 300 - 500) / 4.0)


def test_a_smaller_call_admitted_before_the_opening_counts() -> None:
    estimator = TokenRateEstimator()
    first, last = call(START, 500, refused=True), call(START + 2.0, 500, refused=True)
    sent = [call(START - 0.1, 900), first, call(START + 0.1, 100), call(START + 1.5, 900), last]
    estimator.record_refusal(sent, first, START + 1.0, paced=False)
    estimator.record_refusal(sent, last, START + 3.0, paced=False)
    assert estimator.per_second == pytest.approx(1000 / 2.0)


def test_calls_of_one_size_give_no_token_rate() -> None:
    estimator = TokenRateEstimator()
    first, last = call(START, 500, refused=True), call(START + 2.0, 500, refused=True)
    estimator.record_refusal([first, call(START + 1.0, 500), last], first, START + 0.5, paced=False)
    estimator.record_refusal([first, call(START + 1.0, 500), last], last, START + 2.5, paced=False)
    assert estimator.per_second is None


def test_the_counting_with_the_smaller_error_is_assumed() -> None:
    profile = ProviderProfile()
    profile.record_errors(CountingErrors(requests=0.01, tokens=0.3))
    assert not profile.counts_tokens
    for _ in range(4):
        profile.record_errors(CountingErrors(requests=0.3, tokens=0.01))
    assert profile.counts_tokens


def estimated_from(*intervals: list[int]) -> RateLimiter:
    """Calls of these sizes, then a refusal, from a provider that admits 1,000 tokens a second."""
    limiter, now = RateLimiter({}), START
    for sizes in intervals:
        for size in sizes:
            now += 0.01
            limiter.settle(limiter.reserve(CallCost(size), now), CallCost(size))
        refused, wait = limiter.reserve(CallCost(300), now + 0.01), sum(sizes) / 1000.0
        limiter.cancel(refused, now + 0.02)
        limiter.record_refusal(refused, wait, 0.001)
        now = refused.at + wait
    return limiter


def token_limited() -> RateLimiter:
    return estimated_from([100, 900, 500], [500, 100], [900, 900, 300])


def test_under_a_token_limit_a_small_call_is_sent_sooner() -> None:
    limiter = token_limited()
    assert isinstance(limiter.token_rate(), Rate) and Dimension.REQUESTS not in limiter.rates
    now = START + 10.0
    limiter.reserve(CallCost(900), now)
    small, large = limiter.next_allowed_at(CallCost(100), now), limiter.next_allowed_at(CallCost(900), now)
    assert now < small < large
    assert (large - now) / (small - now) == pytest.approx(9.0, rel=0.01)


def test_the_next_run_starts_with_the_estimated_token_rate() -> None:
    limiter = token_limited()
    calls, token_rate = limiter.per_second(), limiter.token_rate()
    assert calls is not None and token_rate is not None
    later = RateLimiter({})
    later.merge(calls, None, token_rate)
    assert later.token_rate() == token_rate
    assert later.rates[Dimension.TOKENS] == limiter.rates[Dimension.TOKENS]


def test_a_stated_token_limit_ends_the_estimation() -> None:
    limiter = token_limited()
    limiter.add_limit(Dimension.TOKENS, Rate(4000.0, 60.0))
    assert limiter.token_rate() is None
    assert limiter.rates[Dimension.TOKENS] == Rate(4000.0, 60.0)


def test_a_token_bucket_admits_its_capacity_and_then_by_size() -> None:
    bucket = TokenBucket(Rate(900.0, 0.9), 0.0, START)
    assert bucket.next_allowed_at(900, START) <= START
    bucket.record(900, START)
    assert bucket.next_allowed_at(300, START) == pytest.approx(START + 0.3)
    bucket.correct(bucket.record(0, START), 100)
    assert bucket.next_allowed_at(300, START) == pytest.approx(START + 0.4)
