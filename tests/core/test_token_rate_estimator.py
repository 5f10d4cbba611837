"""Whether calls or their tokens are counted by a provider that names neither."""

import pytest

from agentos.core.ratelimit.limiter import RateLimiter
from agentos.core.ratelimit.limits import CallCost, Dimension, Rate
from agentos.core.ratelimit.provider_profile import CountingErrors, ProviderProfile
from agentos.core.ratelimit.token_rate_estimator import TokenRateEstimator
from agentos.core.ratelimit.windows import Reservation, TokenBucket

START = 1000.0


def call(at: float, tokens: int, *, refused: bool = False) -> Reservation:
    return Reservation(at, CallCost(tokens), refused=refused, settled=not refused)


def test_what_came_in_between_two_openings_is_what_was_sent_and_the_difference_of_the_refused() -> None:
    scales = TokenRateEstimator()
    first, last = call(START, 500, refused=True), call(START + 3.0, 300, refused=True)
    sent = [call(START - 0.1, 900), first, call(START + 1.0, 200), call(START + 2.0, 1000), last]
    assert scales.record_refusal(sent, first, START + 0.5, paced=False) is None
    assert scales.record_refusal(sent, last, START + 4.5, paced=False) is None, (
        "there is nothing to compare with yet"
    )
    assert scales.per_second == pytest.approx((200 + 1000 + 300 - 500) / 4.0)


def test_a_smaller_call_that_slipped_in_before_the_opening_counts() -> None:
    scales = TokenRateEstimator()
    first, last = call(START, 500, refused=True), call(START + 2.0, 500, refused=True)
    sent = [call(START - 0.1, 900), first, call(START + 0.1, 100), call(START + 1.5, 900), last]
    scales.record_refusal(sent, first, START + 1.0, paced=False)
    scales.record_refusal(sent, last, START + 3.0, paced=False)
    assert scales.per_second == pytest.approx(1000 / 2.0)


def test_calls_of_one_size_are_not_weighed() -> None:
    scales = TokenRateEstimator()
    first, last = call(START, 500, refused=True), call(START + 2.0, 500, refused=True)
    scales.record_refusal([first, call(START + 1.0, 500), last], first, START + 0.5, paced=False)
    scales.record_refusal([first, call(START + 1.0, 500), last], last, START + 2.5, paced=False)
    assert scales.per_second is None


def test_the_way_of_counting_that_differs_less_from_measure_to_measure_is_the_providers() -> None:
    profile = ProviderProfile()
    profile.record_errors(CountingErrors(requests=0.01, tokens=0.3))
    assert not profile.counts_tokens
    for _ in range(4):
        profile.record_errors(CountingErrors(requests=0.3, tokens=0.01))
    assert profile.counts_tokens


def learnt(*stretches: list[int]) -> RateLimiter:
    """Calls of these sizes, then a refusal, from a provider that admits 1,000 tokens a second."""
    pace, now = RateLimiter({}), START
    for sizes in stretches:
        for size in sizes:
            now += 0.01
            pace.settle(pace.reserve(CallCost(size), now), CallCost(size))
        refused, wait = pace.reserve(CallCost(300), now + 0.01), sum(sizes) / 1000.0
        pace.cancel(refused, now + 0.02)
        pace.record_refusal(refused, wait, 0.001)
        now = refused.at + wait
    return pace


def weighing() -> RateLimiter:
    return learnt([100, 900, 500], [500, 100], [900, 900, 300])


def test_where_tokens_count_a_small_call_goes_sooner_than_a_large_one() -> None:
    pace = weighing()
    assert isinstance(pace.token_rate(), Rate) and Dimension.REQUESTS not in pace.rates
    now = START + 10.0
    pace.reserve(CallCost(900), now)
    small, large = pace.next_allowed_at(CallCost(100), now), pace.next_allowed_at(CallCost(900), now)
    assert now < small < large
    assert (large - now) / (small - now) == pytest.approx(9.0, rel=0.01)


def test_what_was_weighed_is_where_the_next_run_begins() -> None:
    pace = weighing()
    calls, weight = pace.per_second(), pace.token_rate()
    assert calls is not None and weight is not None
    later = RateLimiter({})
    later.merge(calls, None, weight)
    assert later.token_rate() == weight
    assert later.rates[Dimension.TOKENS] == pace.rates[Dimension.TOKENS]


def test_a_limit_of_tokens_that_is_named_ends_the_weighing() -> None:
    pace = weighing()
    pace.add_limit(Dimension.TOKENS, Rate(4000.0, 60.0))
    assert pace.token_rate() is None
    assert pace.rates[Dimension.TOKENS] == Rate(4000.0, 60.0)


def test_a_bucket_that_fills_evenly_admits_what_it_holds_and_then_by_size() -> None:
    meter = TokenBucket(Rate(900.0, 0.9), 0.0, START)
    assert meter.next_allowed_at(900, START) <= START
    meter.record(900, START)
    assert meter.next_allowed_at(300, START) == pytest.approx(START + 0.3)
    meter.correct(meter.record(0, START), 100)
    assert meter.next_allowed_at(300, START) == pytest.approx(START + 0.4)
