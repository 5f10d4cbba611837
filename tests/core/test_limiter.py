"""Usage windows, rate limiter and rate estimator on a simulated clock."""

import heapq
import itertools
from dataclasses import dataclass, field, replace

import pytest
from bench.keypool.limiters import Kind, Limit, Limiter
from hypothesis import given
from hypothesis import strategies as st

from agentos.core.protocol import events
from agentos.core.protocol.peer_notes import BucketLimitsLearned
from agentos.core.protocol.results import Usage
from agentos.core.quota.budget import Budget, PriceList
from agentos.core.quota.lease import Lease
from agentos.core.quota.lease_manager import LeaseManager
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.learned_windows import MAX_LEARNED_WAIT
from agentos.core.ratelimit.limiter import RateLimiter
from agentos.core.ratelimit.limits import (
    CallCost,
    Counting,
    Dimension,
    LearnedLimit,
    LearnedLimits,
    LimitSeen,
    Rate,
)
from agentos.core.ratelimit.provider_profile import ProviderProfile
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.core.ratelimit.unconfirmed_calls import FIRST_UNCONFIRMED
from agentos.core.ratelimit.windows import UsageEntry, UsageWindow, slack_of
from agentos.offline.rate_windows import Window, WindowKind, make_window

from .builders import key, lease_request, proven_pool, steady

START = 1000.0


def learned(per_second: float) -> LearnedLimits:
    limit = LearnedLimit(Dimension.REQUESTS, Counting.TOKEN_BUCKET, 1.0, 1.0 / per_second)
    return LearnedLimits((limit,), refusals=3)


MINUTE = Rate(10.0, 60.0)
calls = st.lists(st.tuples(st.floats(0.0, 40.0), st.integers(0, 15)), max_size=60)


def send_all(usage: UsageWindow, requests: list[tuple[float, int]]) -> list[UsageEntry]:
    """Send each call as soon as it fits, `gap` seconds after the one before or later."""
    now, sent = START, []
    for gap, amount in requests:
        now = max(now + gap, usage.next_allowed_at(amount, now + gap))
        assert usage.next_allowed_at(amount, now) <= now, "not allowed at the moment that was stated"
        sent.append(usage.record(amount, now))
    return sent


def entries_within(sent: list[UsageEntry], end: float, seconds: float) -> list[UsageEntry]:
    return [entry for entry in sent if end - seconds <= entry.at <= end]


# A known limit.


@given(calls)
def test_no_period_of_the_windows_length_exceeds_the_limit(requests: list[tuple[float, int]]) -> None:
    sent = send_all(UsageWindow(MINUTE), requests)
    for last in sent:
        inside = [entry for entry in entries_within(sent, last.at, MINUTE.seconds) if entry.amount]
        alone = len(inside) == 1 and inside[0].amount > MINUTE.amount
        assert alone or sum(entry.amount for entry in inside) <= MINUTE.amount


@given(calls.map(lambda sizes: [(gap, 1) for gap, _ in sizes]))
def test_no_call_waits_while_there_is_room(requests: list[tuple[float, int]]) -> None:
    usage, now = UsageWindow(MINUTE), START
    sent: list[UsageEntry] = []
    for gap, amount in requests:
        now += gap
        full = len(entries_within(sent, now, MINUTE.seconds + usage.slack)) >= MINUTE.amount
        at = usage.next_allowed_at(amount, now)
        assert (at > now) <= full
        now = max(now, at)
        sent.append(usage.record(amount, now))


def test_an_initial_burst_uses_the_whole_limit_and_no_more() -> None:
    usage = UsageWindow(MINUTE)
    for _ in range(10):
        assert usage.next_allowed_at(1, START) <= START
        usage.record(1, START)
    assert START + 60.0 < usage.next_allowed_at(1, START) <= START + 60.2


def test_a_call_larger_than_the_limit_is_sent_alone() -> None:
    usage = UsageWindow(MINUTE)
    usage.record(1, START)
    alone_at = usage.next_allowed_at(25, START + 5)
    assert alone_at == START + 60.0 + usage.slack
    usage.record(25, alone_at)
    assert usage.next_allowed_at(1, alone_at) == alone_at + 60.0 + usage.slack


def test_a_call_that_used_less_than_estimated_makes_room() -> None:
    usage = UsageWindow(MINUTE)
    entry = usage.record(10, START)
    assert usage.next_allowed_at(6, START + 1) > START + 1
    usage.correct(entry, 4)
    assert usage.next_allowed_at(6, START + 1) <= START + 1
    assert usage.used(START + 1) == 4


def test_a_call_that_used_more_than_estimated_delays_the_next() -> None:
    usage = UsageWindow(MINUTE)
    usage.correct(usage.record(1, START), 10)
    assert usage.next_allowed_at(1, START + 1) > START + 60


def test_a_correction_after_the_entry_expired_changes_nothing() -> None:
    usage = UsageWindow(MINUTE)
    entry = usage.record(10, START)
    usage.record(3, START + 100)
    assert usage.used(START + 100) == 3
    usage.correct(entry, 1)
    assert usage.used(START + 100) == 3


@given(st.lists(st.tuples(st.floats(-5.0, 30.0), st.integers(0, 9), st.integers(0, 9)), max_size=40))
def test_the_sum_matches_the_entries_after_any_corrections(
    record: list[tuple[float, int, int]],
) -> None:
    usage, now, at = UsageWindow(MINUTE), START, START
    sent: list[UsageEntry] = []
    for gap, amount, truth in record:
        at = max(START, at + gap)  # a peer's note may be slightly older than our last call
        now = max(now, at)
        sent.append(usage.record(amount, at))
        usage.correct(sent[truth % len(sent)], truth)
        assert usage.used(now) <= sum(entry.amount for entry in sent)
        assert usage.used(now) >= sum(entry.amount for entry in entries_within(sent, now, MINUTE.seconds))
    assert usage.used(now + 70) == 0


def test_a_changed_rate_counts_what_was_used_before() -> None:
    usage = UsageWindow(Rate(100.0, 60.0))
    for _ in range(5):
        usage.record(1, START)
    usage.set_rate(Rate(5.0, 60.0))
    assert usage.next_allowed_at(1, START + 1) > START + 60


# All dimensions of a bucket.


def test_a_call_waits_for_the_slowest_of_its_dimensions() -> None:
    limiter = RateLimiter({Dimension.REQUESTS: Rate(5, 1.0), Dimension.TOKENS: Rate(100, 60.0)})
    limiter.reserve(CallCost(60, 30), START)
    assert limiter.next_allowed_at(CallCost(5, 5), START) <= START
    assert limiter.next_allowed_at(CallCost(50, 0), START) > START + 60


def test_settling_corrects_tokens_but_not_requests() -> None:
    limiter = RateLimiter({dimension: Rate(100, 60.0) for dimension in Dimension})
    reservation = limiter.reserve(CallCost(40, 20), START)
    limiter.settle(reservation, CallCost(30, 5))
    used = {dimension: limiter.used(dimension, START) for dimension in Dimension}
    assert used == {
        Dimension.REQUESTS: 1,
        Dimension.DAY: 1,
        Dimension.TOKENS: 35,
        Dimension.INPUT: 30,
        Dimension.OUTPUT: 5,
    }


def test_a_stated_limit_is_new_only_once() -> None:
    limiter = RateLimiter({})
    assert limiter.add_limit(Dimension.REQUESTS, MINUTE)
    assert not limiter.add_limit(Dimension.REQUESTS, MINUTE)
    assert limiter.add_limit(Dimension.REQUESTS, Rate(20, 60.0))
    assert limiter.rates == {Dimension.REQUESTS: Rate(20, 60.0)}


def test_a_stated_limit_ends_the_estimation() -> None:
    limiter = RateLimiter({})
    limiter.merge(learned(3.0))
    limiter.add_limit(Dimension.REQUESTS, MINUTE)
    assert limiter.learned is None and limiter.rates == {Dimension.REQUESTS: MINUTE}


def refuse(limiter: RateLimiter, at: float, hint: float | None) -> None:
    """Send a call that is refused at once."""
    reservation = limiter.reserve(CallCost(), at)
    is_new = limiter.cancel(reservation, at + 0.001)
    limiter.record_refusal(reservation, at + 0.001, hint, is_new=is_new)


def answer(limiter: RateLimiter, at: float) -> None:
    limiter.settle(limiter.reserve(CallCost(), at), CallCost(), at + 0.1)


def test_a_known_limit_that_is_refused_although_kept_is_halved_at_the_same_rate() -> None:
    limiter = RateLimiter({Dimension.REQUESTS: Rate(60, 60.0)})
    for step, amount in enumerate((30, 15, 7, 3, 1, 1)):
        now = START + 100 * step
        refuse(limiter, now, None)
        (rate,) = limiter.rates.values()
        assert rate.amount == amount
        assert rate.per_second == pytest.approx(1.0), "the same in the long run"


def test_a_halved_window_stays_when_the_same_limit_is_stated_again() -> None:
    limiter = RateLimiter({})
    limiter.add_limit(Dimension.REQUESTS, Rate(60, 60.0))
    refuse(limiter, START, None)
    assert not limiter.add_limit(Dimension.REQUESTS, Rate(60, 60.0))
    assert limiter.rates == {Dimension.REQUESTS: Rate(30, 30.0)}


@pytest.mark.parametrize("burst", [1, 5, 40])
def test_a_hint_tells_how_many_calls_a_known_limit_admits_at_once(burst: int) -> None:
    profile = ProviderProfile()
    limiter, other = (RateLimiter({Dimension.REQUESTS: Rate(60, 60.0)}, profile) for _ in range(2))
    provider = Limiter(Limit(Kind.BUCKET, 60, 60.0, burst=burst), (), START)
    for number in range(burst):
        provider.admit(START + number / 100, 1)
        answer(limiter, START + number / 100)
    refuse(limiter, START + 0.5, provider.wait(START + 0.5, 1))
    assert limiter.rates == {Dimension.REQUESTS: Rate(burst, float(burst))}
    assert other.next_allowed_at(CallCost(), START) == START
    assert other.rates == limiter.rates, "the other keys of the provider need not find it out"


def test_a_call_that_arrives_before_its_window_opens_delays_the_next_ones_a_little() -> None:
    limiter = RateLimiter({Dimension.REQUESTS: Rate(2, 10.0)})
    for at in (START, START + 1):
        answer(limiter, at)
    opens_at = limiter.next_allowed_at(CallCost(), START + 2)
    refuse(limiter, opens_at, 0.02)
    assert limiter.rates == {Dimension.REQUESTS: Rate(2, 10.0)}, "the limit is as it was known"
    answer(limiter, opens_at + 0.1)
    slack = slack_of(10.0)
    assert limiter.next_allowed_at(CallCost(), opens_at + 0.2) == pytest.approx(START + 11.0 + slack + 0.01)
    opens_at = limiter.next_allowed_at(CallCost(), opens_at + 0.2)
    for number in range(10):
        refuse(limiter, opens_at + number / 100, 0.2)
    assert limiter.rates[Dimension.REQUESTS].amount == 1, "what is refused all the time is not merely early"


@pytest.mark.parametrize(
    ("rate", "counting"), [(Rate(2, 10.0), Counting.SLIDING), (Rate(1, 5.0), Counting.TOKEN_BUCKET)]
)
def test_calls_that_arrive_too_early_delay_all_keys_for_a_while(rate: Rate, counting: Counting) -> None:
    profile = ProviderProfile(counting)
    first, other = (RateLimiter({Dimension.REQUESTS: rate}, profile) for _ in range(2))
    for _ in range(int(rate.amount)):
        answer(first, START)
        answer(other, START)
    before = other.next_allowed_at(CallCost(), START)
    refuse(first, first.next_allowed_at(CallCost(), START), 0.04)
    assert other.next_allowed_at(CallCost(), START) == pytest.approx(before + 0.02)
    for number in range(2000):
        answer(first, START + 100 * (number + 1))
    assert before < other.next_allowed_at(CallCost(), START) < before + 0.001, "the network has calmed down"


def test_a_burst_is_measured_again_when_more_of_its_calls_are_refused() -> None:
    profile = ProviderProfile()
    limiter, other = (RateLimiter({Dimension.REQUESTS: Rate(60, 60.0)}, profile) for _ in range(2))
    answer(limiter, START)
    reservations = [limiter.reserve(CallCost(), START + 0.25) for _ in range(4)]
    for reservation in reservations:
        is_new = limiter.cancel(reservation, START + 0.3)
        limiter.record_refusal(reservation, START + 0.3, 0.7, is_new=is_new)
    assert limiter.rates == {Dimension.REQUESTS: Rate(1, 1.0)}
    other.next_allowed_at(CallCost(), START + 0.3)
    assert other.rates == limiter.rates


def test_refusals_of_one_burst_count_as_one() -> None:
    limiter = RateLimiter({Dimension.REQUESTS: Rate(60, 60.0)})
    reservations = [limiter.reserve(CallCost(), START + step / 100) for step in range(8)]
    assert [limiter.cancel(reservation, START + 0.1) for reservation in reservations] == [True] + 7 * [False]
    assert limiter.used(Dimension.REQUESTS, START + 0.1) == 0


# Unknown limits.


def test_a_configured_limit_is_lowered_by_a_stated_one_but_never_raised() -> None:
    limiter = RateLimiter({Dimension.REQUESTS: Rate(30, 60.0)})
    assert not limiter.add_limit(Dimension.REQUESTS, Rate(60, 60.0))
    assert limiter.rates == {Dimension.REQUESTS: Rate(30, 60.0)}
    assert limiter.add_limit(Dimension.REQUESTS, Rate(20, 60.0))
    assert limiter.rates == {Dimension.REQUESTS: Rate(20, 60.0)}


def test_a_rate_edited_during_a_run_is_kept_and_earlier_calls_still_count() -> None:
    before, after = (
        [replace(key("key-1", concurrency=9), rates=((Dimension.REQUESTS, Rate(amount, 60.0)),))]
        for amount in (10, 3)
    )
    pool = proven_pool(before)
    for number in range(4):
        pool.request(lease_request(f"LLD-{number}"))
        assert len(pool.grant(START)) == (number < 2)
        if number == 1:
            pool.replace(after)
            pool.request(lease_request("LLD-9"))
            assert len(pool.grant(START)) == 1


@dataclass(order=True)
class PendingRelease:
    at: float
    number: int
    lease: Lease = field(compare=False)
    refusal: Refusal | None = field(compare=False)


class LimiterSimulation:
    """One key, 32 callers that always have work, and a provider with its own limiter."""

    def __init__(
        self,
        window: Window,
        latency: float = 0.1,
        stated: tuple[LimitSeen, ...] = (),
        rates: tuple[tuple[Dimension, Rate], ...] = (),
    ) -> None:
        callers = 32
        credential = replace(key("key-1", concurrency=callers), rates=rates)
        self.lease_manager = LeaseManager(Pool([credential]), steady, Budget(PriceList()))
        self.hides_hints = False
        self.now = START
        self.admitted: list[float] = []
        self.refused: list[float] = []
        self._window, self._latency, self._stated = window, latency, stated
        self._in_flight: list[PendingRelease] = []
        self._numbers = itertools.count()
        for number in range(callers):
            self._request(f"LLD-{number}")

    def run_for(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            for lease in self.lease_manager.grants(self.now):
                heapq.heappush(self._in_flight, self._answer(lease))
            wake = self.lease_manager.wake_at(self.now)
            moments = [
                end,
                *(release.at for release in self._in_flight[:1]),
                *([wake] if wake is not None else []),
            ]
            assert min(moments) > self.now, "woken without a grant"
            self.now = min(moments)
            while self._in_flight and self._in_flight[0].at <= self.now:
                self._release(heapq.heappop(self._in_flight))

    def rate(self, seconds: float) -> float:
        return sum(at > self.now - seconds for at in self.admitted) / seconds

    def _request(self, item: str) -> None:
        self.lease_manager.request(events.LeaseRequested(item, "call", ("gemini",)), self.now)

    def _answer(self, lease: Lease) -> PendingRelease:
        wait = self._window.wait(self.now, 1)
        if wait > 0:
            self.refused.append(self.now)
            hint = None if self.hides_hints else wait
            refusal = Refusal(RefusalKind.RATE_LIMITED, "429", hint, limits=self._stated)
            return PendingRelease(self.now + 0.02, next(self._numbers), lease, refusal)
        self._window.spend(self.now, 1)
        self.admitted.append(self.now)
        return PendingRelease(self.now + self._latency, next(self._numbers), lease, None)

    def _release(self, back: PendingRelease) -> None:
        usage = Usage() if back.refusal else Usage(1, 10, 10)
        item = back.lease.request.holder
        released = events.LeaseReleased(item, back.lease.id, 0.1, usage, back.refusal, limits=self._stated)
        self.lease_manager.release(released, max(self.now, back.at))
        self._request(item)


WINDOWS = {
    "a bucket of one call": lambda: make_window(WindowKind.BUCKET, 5, 1.0, 1),
    "a bucket of a second": lambda: make_window(WindowKind.BUCKET, 5, 1.0),
    "a sliding second": lambda: make_window(WindowKind.SLIDING, 5, 1.0),
    "a sliding ten seconds": lambda: make_window(WindowKind.SLIDING, 50, 10.0),
    "a fixed ten seconds": lambda: make_window(WindowKind.FIXED, 50, 10.0),
}


@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("latency", [0.1, 2.0])
def test_the_rate_is_found_with_few_refusals_at_any_latency(kind: str, latency: float) -> None:
    simulation = LimiterSimulation(WINDOWS[kind](), latency=latency)
    simulation.run_for(120.0)
    refused_while_learning = len(simulation.refused)
    simulation.run_for(240.0)
    # A bucket may hold what was not used before.
    assert 0.93 * 5 <= simulation.rate(240.0) <= 5.0 + 5 / 240.0
    assert refused_while_learning <= 0.07 * (len(simulation.admitted) + refused_while_learning)
    refused_later = len(simulation.refused) - refused_while_learning
    assert refused_later <= 0.03 * (5 * 240 + refused_later)


@pytest.mark.parametrize("amount", [60, 300])
def test_a_limit_enforced_in_smaller_portions_than_stated_is_detected(amount: int) -> None:
    stated = (LimitSeen(Dimension.REQUESTS, amount),)
    simulation = LimiterSimulation(make_window(WindowKind.BUCKET, amount, 60.0, 1), stated=stated)
    simulation.run_for(120.0)
    refused_while_learning = len(simulation.refused)
    simulation.run_for(240.0)
    assert simulation.rate(240.0) >= 0.93 * amount / 60
    assert len(simulation.refused) - refused_while_learning <= 0.005 * len(simulation.admitted)


@pytest.mark.parametrize("window", WindowKind)
def test_a_stated_limit_is_kept_after_the_first_refusals(window: WindowKind) -> None:
    stated = (LimitSeen(Dimension.REQUESTS, 20),)
    simulation = LimiterSimulation(make_window(window, 20, 60.0), stated=stated)
    simulation.run_for(600.0)
    assert simulation.rate(300.0) >= 0.93 * 20 / 60
    assert len(simulation.refused) <= 12, "the excess of the first burst, before the limit was stated"


def test_an_estimate_of_an_earlier_run_is_the_starting_point() -> None:
    simulation = LimiterSimulation(make_window(WindowKind.BUCKET, 5, 1.0, 1))
    simulation.lease_manager.pool.bucket("key-1").limiter.merge(learned(5.0))
    simulation.run_for(60.0)
    assert simulation.rate(60.0) >= 0.93 * 5 and len(simulation.refused) <= 5


def test_a_wrong_estimate_of_an_earlier_run_is_corrected() -> None:
    for wrong in (1.0, 25.0):
        simulation = LimiterSimulation(make_window(WindowKind.BUCKET, 5, 1.0, 1))
        simulation.lease_manager.pool.bucket("key-1").limiter.merge(learned(wrong))
        simulation.run_for(240.0)
        assert 0.9 * 5 <= simulation.rate(60.0) <= 5.0


def test_what_a_peer_has_learned_last_is_taken_over() -> None:
    limiter = RateLimiter({})
    limiter.merge(learned(5.0))
    limiter.merge(learned(1.0))
    assert limiter.learned == learned(1.0)


def test_while_limits_are_unknown_few_unconfirmed_calls_are_in_flight() -> None:
    limiter, sent = RateLimiter({}), 0
    while limiter.next_allowed_at(CallCost(), START) <= START:
        limiter.reserve(CallCost(), START)
        sent += 1
    assert sent == FIRST_UNCONFIRMED
    assert limiter.next_allowed_at(CallCost(), START + 1) == START + 1, "not refused for a second: admitted"


def test_the_more_calls_were_admitted_the_more_may_be_unconfirmed() -> None:
    limiter, now = RateLimiter({}), START
    for _ in range(400):
        now = max(now, limiter.next_allowed_at(CallCost(), now))
        limiter.settle(limiter.reserve(CallCost(), now), CallCost(), now + 0.01)
    sent = 0
    while limiter.next_allowed_at(CallCost(), now) <= now and sent < 1000:
        limiter.reserve(CallCost(), now)
        sent += 1
    assert sent > 50


steps = st.lists(
    st.tuples(
        st.floats(0.0, 100.0),
        st.sampled_from(["answer", "refuse", "drop", "leave"]),
        st.none() | st.floats(0.0, 3600.0) | st.integers(0, 60).map(float),
        st.integers(1, 5000),
    ),
    max_size=40,
)


@given(steps)
def test_whatever_was_learned_a_call_waits_for_an_hour_at_most(
    history: list[tuple[float, str, float | None, int]],
) -> None:
    limiter, now = RateLimiter({}), START
    for gap, outcome, hint, tokens in history:
        now += gap
        reservation = limiter.reserve(CallCost(tokens, 0), now)
        now += 0.05
        match outcome:
            case "answer":
                limiter.settle(reservation, CallCost(tokens, 0), now)
            case "refuse":
                is_new = limiter.cancel(reservation, now)
                limiter.record_refusal(reservation, now, hint, is_new=is_new)
            case "drop":
                limiter.drop(reservation, now)
        assert limiter.next_allowed_at(CallCost(tokens, 0), now) <= now + MAX_LEARNED_WAIT


@pytest.mark.parametrize("kind", [RefusalKind.DAY_EXHAUSTED, RefusalKind.KEY_REJECTED, RefusalKind.NO_ACCESS])
def test_a_call_refused_for_another_reason_leaves_its_slot(kind: RefusalKind) -> None:
    manager = LeaseManager(proven_pool([key("key-1", concurrency=9)]), steady, Budget(PriceList()))
    manager.pool.request(lease_request("LLD-1"))
    (lease,) = manager.grants(START)
    refusal = Refusal(kind, "refused", day_seconds=60.0)
    manager.release(events.LeaseReleased("LLD-1", lease.id, 0.1, Usage(), refusal), START + 1)
    assert lease.reservation.ended_at == START + 1


# How a provider counts.

WINDOW_OF = {
    Counting.SLIDING: WindowKind.SLIDING,
    Counting.FIXED: WindowKind.FIXED,
    Counting.TOKEN_BUCKET: WindowKind.BUCKET,
}


@given(
    st.sampled_from(sorted(WINDOW_OF)),
    st.lists(st.tuples(st.floats(0.0, 20.0), st.floats(0.0, 0.1)), min_size=1, max_size=60),
)
def test_a_provider_admits_what_fits_its_way_of_counting(
    counting: Counting, requests: list[tuple[float, float]]
) -> None:
    usage = UsageWindow(MINUTE, counting)
    provider, now, arrives = make_window(WINDOW_OF[counting], 10, 60.0), START, START
    for gap, network_delay in requests:
        now = max(now + gap, usage.next_allowed_at(1, now + gap))
        usage.record(1, now)
        arrives = max(arrives, now + network_delay)
        assert provider.wait(arrives, 1) == 0
        provider.spend(arrives, 1)


@pytest.mark.parametrize("window", WindowKind)
def test_one_probe_finds_out_how_a_provider_counts(window: WindowKind) -> None:
    simulation = LimiterSimulation(
        make_window(window, 20, 60.0), rates=((Dimension.REQUESTS, Rate(20, 60.0)),)
    )
    simulation.run_for(600.0)
    assert len(simulation.refused) <= 1
    possible = {WindowKind.SLIDING: 200, WindowKind.FIXED: 200, WindowKind.BUCKET: 219}[window]
    assert len(simulation.admitted) >= 0.96 * possible
    estimated = simulation.lease_manager.pool.bucket("key-1").limiter.profile.counting
    assert estimated is not None and WINDOW_OF[estimated] is window


FIXED_STARTS = {"when the other's do": 0.0, "at another time": 20.0}


@pytest.mark.parametrize("later", FIXED_STARTS.values(), ids=FIXED_STARTS)
def test_one_call_finds_out_when_the_fixed_windows_of_another_key_start(later: float) -> None:
    profile, rates = ProviderProfile(Counting.FIXED), {Dimension.REQUESTS: Rate(2, 60.0)}
    limiter = RateLimiter(rates, profile)
    profile.window_start, profile.starts_together = START, True
    for at in (START + 30, START + 31):
        answer(limiter, at)
    assert limiter.next_allowed_at(CallCost(), START + 32) > START + 90, (
        "a sliding window until that is known"
    )
    may_probe = limiter.may_probe
    probe_at = limiter.probe_at(CallCost(), START + 32)
    assert probe_at is not None and START + 60 <= probe_at < START + 61
    limiter.start_probe(probe_at)
    assert (may_probe, limiter.may_probe) == (True, False), "one call at a time"
    if later:
        refuse(limiter, probe_at, START + 60 + later - probe_at)
    else:
        answer(limiter, probe_at)
    assert limiter.window_start == pytest.approx(START + 60 * (later > 0) + later, abs=0.01)
    assert limiter.next_allowed_at(CallCost(), START + 62 + later) <= START + 62 + later


PHASES = {"at the same time": (0.0, True), "at another time": (20.0, False)}


@pytest.mark.parametrize(("later", "together"), PHASES.values(), ids=PHASES)
def test_a_second_key_shows_at_once_whether_fixed_windows_start_together(
    later: float, together: bool
) -> None:
    profile, rates = ProviderProfile(Counting.FIXED), {Dimension.REQUESTS: Rate(2, 60.0)}
    second, third = RateLimiter(rates, profile), RateLimiter(rates, profile)
    profile.window_start, now = START, START + 32
    for limiter in (second, third):
        answer(limiter, START + 30)
        answer(limiter, START + 31)
    assert second.may_probe and second.probe_at(CallCost(), now) == now
    second.start_probe(now)
    assert not third.may_probe, "one call is enough if windows start together"
    refuse(second, now, START + 60 + later - now)
    assert profile.starts_together is together
    assert second.window_start == pytest.approx(START + 60 + later)
    probe_at = third.probe_at(CallCost(), now)
    assert probe_at is not None and (probe_at >= START + 60 if together else probe_at == now)


def test_fixed_windows_start_at_the_latest_when_a_probe_is_admitted() -> None:
    profile = ProviderProfile(Counting.FIXED, START)
    limiter = RateLimiter({Dimension.REQUESTS: Rate(2, 60.0)}, profile)
    answer(limiter, START + 30)
    answer(limiter, START + 31)
    limiter.start_probe(START + 40)
    answer(limiter, START + 40)
    assert (limiter.window_start, profile.starts_together) == (START + 40, False)
    answer(limiter, START + 41)
    assert START + 100 <= limiter.next_allowed_at(CallCost(), START + 42) < START + 101


def test_a_hint_corrects_a_probe_that_was_admitted_by_a_fixed_window() -> None:
    profile = ProviderProfile(Counting.TOKEN_BUCKET)
    limiter = RateLimiter({Dimension.REQUESTS: Rate(2, 60.0)}, profile)
    answer(limiter, START)
    answer(limiter, START + 1)
    refuse(limiter, START + 35, 10.0)
    assert profile.counting is Counting.FIXED
    assert limiter.window_start == pytest.approx(START + 45, abs=0.01)


def test_a_probe_refused_without_a_hint_means_a_sliding_window() -> None:
    simulation = LimiterSimulation(
        make_window(WindowKind.FIXED, 20, 60.0), rates=((Dimension.REQUESTS, Rate(20, 60.0)),)
    )
    simulation.hides_hints = True
    simulation.run_for(600.0)
    assert len(simulation.refused) == 1
    assert simulation.lease_manager.pool.bucket("key-1").limiter.rates == {Dimension.REQUESTS: Rate(20, 60.0)}


def test_other_runs_learn_how_a_provider_counts_without_probing() -> None:
    first = LimiterSimulation(
        make_window(WindowKind.FIXED, 20, 60.0), rates=((Dimension.REQUESTS, Rate(20, 60.0)),)
    )
    first.run_for(120.0)
    second = LimiterSimulation(
        make_window(WindowKind.FIXED, 20, 60.0), rates=((Dimension.REQUESTS, Rate(20, 60.0)),)
    )
    for note in first.lease_manager.drain_notes():
        if isinstance(note, BucketLimitsLearned):
            second.lease_manager.pool.apply_note(note)
    second.run_for(300.0)
    assert len(first.refused) == 1 and not second.refused


def test_a_wrong_counting_falls_back_to_the_sliding_window() -> None:
    simulation = LimiterSimulation(
        make_window(WindowKind.SLIDING, 20, 60.0), rates=((Dimension.REQUESTS, Rate(20, 60.0)),)
    )
    simulation.lease_manager.pool.bucket("key-1").limiter.merge_counting(Counting.TOKEN_BUCKET, None)
    simulation.run_for(600.0)
    assert len(simulation.refused) <= 8 and simulation.rate(300.0) >= 0.93 * 20 / 60


def test_an_unstated_fixed_window_is_found_and_used_up_when_it_opens() -> None:
    simulation = LimiterSimulation(make_window(WindowKind.FIXED, 30, 60.0), latency=0.05)
    simulation.run_for(600.0)
    assert len(simulation.admitted) >= 290 and len(simulation.refused) <= 0.07 * len(simulation.admitted)
    last = [at for at in simulation.admitted if at > simulation.now - 50]
    assert last and last[-1] - last[0] < 10
