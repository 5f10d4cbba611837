"""Amounts in a time, known or learnt, on a clock that the test moves."""

import heapq
import itertools
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentos.core.protocol import events
from agentos.core.protocol.peer_notes import BucketLimitsLearned
from agentos.core.protocol.results import Usage
from agentos.core.quota.budget import Budget, PriceList
from agentos.core.quota.lease import Lease
from agentos.core.quota.lease_manager import LeaseManager
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.limiter import RateLimiter
from agentos.core.ratelimit.limits import CallCost, Dimension, LimitSeen, Rate
from agentos.core.ratelimit.provider_profile import Counting, ProviderProfile
from agentos.core.ratelimit.rate_estimator import MAX_UNCONFIRMED, RateEstimator
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.core.ratelimit.windows import UsageEntry, UsageWindow
from agentos.offline.rate_windows import Window, WindowKind, make_window

from .builders import key, proven, steady, want

START = 1000.0
MINUTE = Rate(10.0, 60.0)
calls = st.lists(st.tuples(st.floats(0.0, 40.0), st.integers(0, 15)), max_size=60)


def send_all(meter: UsageWindow, wishes: list[tuple[float, int]]) -> list[UsageEntry]:
    """Each call comes some time after the one before it, and is sent as soon as it fits."""
    now, sent = START, []
    for gap, amount in wishes:
        now = max(now + gap, meter.next_allowed_at(amount, now + gap))
        assert meter.next_allowed_at(amount, now) <= now, "what was named as the moment is not the moment"
        sent.append(meter.record(amount, now))
    return sent


def window(sent: list[UsageEntry], end: float, seconds: float) -> list[UsageEntry]:
    return [spent for spent in sent if end - seconds <= spent.at <= end]


# A known rate.


@given(calls)
def test_no_window_of_any_place_holds_more_than_the_amount(wishes: list[tuple[float, int]]) -> None:
    sent = send_all(UsageWindow(MINUTE), wishes)
    for spent in sent:
        inside = [one for one in window(sent, spent.at, MINUTE.seconds) if one.amount]
        alone = len(inside) == 1 and inside[0].amount > MINUTE.amount
        assert alone or sum(one.amount for one in inside) <= MINUTE.amount


@given(calls.map(lambda found: [(gap, 1) for gap, _ in found]))
def test_no_call_waits_while_there_is_room(wishes: list[tuple[float, int]]) -> None:
    meter, now = UsageWindow(MINUTE), START
    sent: list[UsageEntry] = []
    for gap, amount in wishes:
        now += gap
        full = len(window(sent, now, MINUTE.seconds + meter.slack)) >= MINUTE.amount
        at = meter.next_allowed_at(amount, now)
        assert (at > now) <= full
        now = max(now, at)
        sent.append(meter.record(amount, now))


def test_a_burst_at_the_start_uses_what_is_allowed_and_no_more() -> None:
    meter = UsageWindow(MINUTE)
    for _ in range(10):
        assert meter.next_allowed_at(1, START) <= START
        meter.record(1, START)
    assert START + 60.0 < meter.next_allowed_at(1, START) <= START + 60.2


def test_a_call_larger_than_the_whole_limit_goes_alone() -> None:
    meter = UsageWindow(MINUTE)
    meter.record(1, START)
    alone_at = meter.next_allowed_at(25, START + 5)
    assert alone_at == START + 60.0 + meter.slack
    meter.record(25, alone_at)
    assert meter.next_allowed_at(1, alone_at) == alone_at + 60.0 + meter.slack


def test_a_call_that_used_less_than_was_thought_makes_room_for_the_next() -> None:
    meter = UsageWindow(MINUTE)
    spent = meter.record(10, START)
    assert meter.next_allowed_at(6, START + 1) > START + 1
    meter.correct(spent, 4)
    assert meter.next_allowed_at(6, START + 1) <= START + 1
    assert meter.used(START + 1) == 4


def test_a_call_that_used_more_than_was_thought_holds_the_next_one_up() -> None:
    meter = UsageWindow(MINUTE)
    meter.correct(meter.record(1, START), 10)
    assert meter.next_allowed_at(1, START + 1) > START + 60


def test_a_correction_that_comes_after_the_window_changes_nothing() -> None:
    meter = UsageWindow(MINUTE)
    spent = meter.record(10, START)
    meter.record(3, START + 100)
    assert meter.used(START + 100) == 3
    meter.correct(spent, 1)
    assert meter.used(START + 100) == 3


@given(st.lists(st.tuples(st.floats(-5.0, 30.0), st.integers(0, 9), st.integers(0, 9)), max_size=40))
def test_the_sum_is_that_of_the_entries_whatever_was_corrected_and_when(
    record: list[tuple[float, int, int]],
) -> None:
    meter, now, at = UsageWindow(MINUTE), START, START
    sent: list[UsageEntry] = []
    for gap, amount, truth in record:
        at = max(START, at + gap)  # a neighbour's note may be a moment older than our last call
        now = max(now, at)
        sent.append(meter.record(amount, at))
        meter.correct(sent[truth % len(sent)], truth)
        assert meter.used(now) <= sum(spent.amount for spent in sent)
        assert meter.used(now) >= sum(spent.amount for spent in window(sent, now, MINUTE.seconds))
    assert meter.used(now + 70) == 0


def test_another_rate_counts_what_was_spent_before() -> None:
    meter = UsageWindow(Rate(100.0, 60.0))
    for _ in range(5):
        meter.record(1, START)
    meter.set_rate(Rate(5.0, 60.0))
    assert meter.next_allowed_at(1, START + 1) > START + 60


# All dimensions of a bucket.


def test_a_call_waits_for_the_slowest_of_its_dimensions() -> None:
    pace = RateLimiter({Dimension.REQUESTS: Rate(5, 1.0), Dimension.TOKENS: Rate(100, 60.0)})
    pace.reserve(CallCost(60, 30), START)
    assert pace.next_allowed_at(CallCost(5, 5), START) <= START
    assert pace.next_allowed_at(CallCost(50, 0), START) > START + 60


def test_tokens_are_corrected_by_the_usage_and_requests_are_not() -> None:
    pace = RateLimiter({dimension: Rate(100, 60.0) for dimension in Dimension})
    reservation = pace.reserve(CallCost(40, 20), START)
    pace.settle(reservation, CallCost(30, 5))
    used = {dimension: pace.used(dimension, START) for dimension in Dimension}
    assert used == {
        Dimension.REQUESTS: 1,
        Dimension.DAY: 1,
        Dimension.TOKENS: 35,
        Dimension.INPUT: 30,
        Dimension.OUTPUT: 5,
    }


def test_a_limit_is_news_once() -> None:
    pace = RateLimiter({})
    assert pace.add_limit(Dimension.REQUESTS, MINUTE)
    assert not pace.add_limit(Dimension.REQUESTS, MINUTE)
    assert pace.add_limit(Dimension.REQUESTS, Rate(20, 60.0))
    assert pace.rates == {Dimension.REQUESTS: Rate(20, 60.0)}


def test_a_limit_that_is_named_ends_the_learning() -> None:
    pace = RateLimiter({})
    pace.merge(3.0)
    pace.add_limit(Dimension.REQUESTS, MINUTE)
    assert pace.per_second() is None and pace.rates == {Dimension.REQUESTS: MINUTE}


def test_a_known_limit_that_was_kept_to_and_refused_is_kept_in_smaller_portions() -> None:
    pace = RateLimiter({Dimension.REQUESTS: Rate(60, 60.0)})
    for step, amount in enumerate((30, 15, 7, 3, 1, 1)):
        pace.record_refusal(pace.reserve(CallCost(), START + 100 * step), 1.0, 0.1)
        (rate,) = pace.rates.values()
        assert rate.amount == amount
        assert rate.per_second == pytest.approx(1.0), "the same in the long run"


def test_smaller_portions_stay_when_the_same_limit_is_named_again() -> None:
    pace = RateLimiter({})
    pace.add_limit(Dimension.REQUESTS, Rate(60, 60.0))
    pace.record_refusal(pace.reserve(CallCost(), START), 1.0, 0.1)
    assert not pace.add_limit(Dimension.REQUESTS, Rate(60, 60.0))
    assert pace.rates == {Dimension.REQUESTS: Rate(30, 30.0)}


def test_refusals_of_one_burst_count_as_one() -> None:
    pace = RateLimiter({Dimension.REQUESTS: Rate(60, 60.0)})
    reservations = [pace.reserve(CallCost(), START + step / 100) for step in range(8)]
    assert [pace.cancel(reservation, START + 0.1) for reservation in reservations] == [True] + 7 * [False]
    assert pace.used(Dimension.REQUESTS, START + 0.1) == 0


# A rate that nobody told.


def test_what_a_person_has_set_is_lowered_by_what_the_provider_names_but_never_raised() -> None:
    pace = RateLimiter({Dimension.REQUESTS: Rate(30, 60.0)})
    assert not pace.add_limit(Dimension.REQUESTS, Rate(60, 60.0))
    assert pace.rates == {Dimension.REQUESTS: Rate(30, 60.0)}
    assert pace.add_limit(Dimension.REQUESTS, Rate(20, 60.0))
    assert pace.rates == {Dimension.REQUESTS: Rate(20, 60.0)}


def test_a_rate_that_is_edited_during_a_run_is_kept_to_and_what_was_sent_counts_on() -> None:
    before, after = (
        [replace(key("key-1", concurrency=9), rates=((Dimension.REQUESTS, Rate(amount, 60.0)),))]
        for amount in (10, 3)
    )
    pool = proven(before)
    for number in range(4):
        pool.request(want(f"LLD-{number}"))
        assert len(pool.grant(START)) == (number < 2)
        if number == 1:
            pool.replace(after)
            pool.request(want("LLD-9"))
            assert len(pool.grant(START)) == 1


@dataclass(order=True)
class Return:
    at: float
    number: int
    lease: Lease = field(compare=False)
    refusal: Refusal | None = field(compare=False)


class World:
    """One key, callers who never have enough, and a provider that counts in its own way."""

    def __init__(
        self,
        stats: Window,
        latency: float = 0.1,
        named: tuple[LimitSeen, ...] = (),
        rates: tuple[tuple[Dimension, Rate], ...] = (),
    ) -> None:
        callers = 32
        credential = replace(key("key-1", concurrency=callers), rates=rates)
        self.leasing = LeaseManager(Pool([credential]), steady, Budget(PriceList()))
        self.mute = False
        self.now = START
        self.admitted: list[float] = []
        self.refused: list[float] = []
        self._tally, self._latency, self._named = stats, latency, named
        self._under_way: list[Return] = []
        self._numbers = itertools.count()
        for number in range(callers):
            self._ask(f"LLD-{number}")

    @property
    def found(self) -> float:
        return self.leasing.pool.bucket("key-1").limiter.per_second() or 0.0

    def live(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            for lease in self.leasing.grants(self.now):
                heapq.heappush(self._under_way, self._answer(lease))
            wake = self.leasing.wake_at(self.now)
            moments = [end, *(one.at for one in self._under_way[:1]), *([wake] if wake is not None else [])]
            assert min(moments) > self.now, "woken without being served"
            self.now = min(moments)
            while self._under_way and self._under_way[0].at <= self.now:
                self._give_back(heapq.heappop(self._under_way))

    def rate(self, seconds: float) -> float:
        return sum(at > self.now - seconds for at in self.admitted) / seconds

    def _ask(self, item: str) -> None:
        self.leasing.request(events.LeaseRequested(item, "call", ("gemini",)), self.now)

    def _answer(self, lease: Lease) -> Return:
        wait = self._tally.wait(self.now, 1)
        if wait > 0:
            self.refused.append(self.now)
            hint = None if self.mute else wait
            refusal = Refusal(RefusalKind.RATE_LIMITED, "429", hint, limits=self._named)
            return Return(self.now + 0.02, next(self._numbers), lease, refusal)
        self._tally.spend(self.now, 1)
        self.admitted.append(self.now)
        return Return(self.now + self._latency, next(self._numbers), lease, None)

    def _give_back(self, back: Return) -> None:
        usage = Usage() if back.refusal else Usage(1, 10, 10)
        item = back.lease.request.holder
        told = events.LeaseReleased(item, back.lease.id, 0.1, usage, back.refusal, limits=self._named)
        self.leasing.release(told, max(self.now, back.at))
        self._ask(item)


KINDS = {
    "a bucket of one call": lambda: make_window(WindowKind.BUCKET, 5, 1.0, 1),
    "a bucket of a second": lambda: make_window(WindowKind.BUCKET, 5, 1.0),
    "a sliding second": lambda: make_window(WindowKind.SLIDING, 5, 1.0),
    "a sliding ten seconds": lambda: make_window(WindowKind.SLIDING, 50, 10.0),
    "a fixed ten seconds": lambda: make_window(WindowKind.FIXED, 50, 10.0),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("latency", [0.1, 2.0])
def test_the_rate_is_found_with_few_refusals_however_slow_the_answers(kind: str, latency: float) -> None:
    world = World(KINDS[kind](), latency=latency)
    world.live(120.0)
    learning = len(world.refused)
    world.live(240.0)
    assert 0.93 * 5 <= world.rate(240.0) <= 5.0
    assert learning <= 0.07 * (len(world.admitted) + learning)
    assert len(world.refused) - learning <= 0.02 * 5 * 240


@pytest.mark.parametrize("amount", [60, 300])
def test_a_limit_that_is_enforced_in_smaller_portions_than_it_is_named_is_found_out(amount: int) -> None:
    named = (LimitSeen(Dimension.REQUESTS, amount),)
    world = World(make_window(WindowKind.BUCKET, amount, 60.0, 1), named=named)
    world.live(120.0)
    learning = len(world.refused)
    world.live(240.0)
    assert world.rate(240.0) >= 0.93 * amount / 60
    assert len(world.refused) - learning <= 0.005 * len(world.admitted)


@pytest.mark.parametrize("window", WindowKind)
def test_a_limit_that_is_named_is_kept_to_after_the_first_refusals(window: WindowKind) -> None:
    named = (LimitSeen(Dimension.REQUESTS, 20),)
    world = World(make_window(window, 20, 60.0), named=named)
    world.live(600.0)
    assert world.rate(300.0) >= 0.93 * 20 / 60
    assert len(world.refused) <= 12, "what the first burst had too many, before anything was named"


def test_what_an_earlier_run_found_is_where_this_one_begins() -> None:
    world = World(make_window(WindowKind.BUCKET, 5, 1.0, 1))
    world.leasing.pool.bucket("key-1").limiter.merge(5.0)
    world.live(60.0)
    assert world.rate(60.0) >= 0.93 * 5 and len(world.refused) <= 5


def test_what_an_earlier_run_found_is_forgotten_when_it_proves_wrong() -> None:
    for wrong in (1.0, 25.0):
        world = World(make_window(WindowKind.BUCKET, 5, 1.0, 1))
        world.leasing.pool.bucket("key-1").limiter.merge(wrong)
        world.live(240.0)
        assert 0.9 * 5 <= world.rate(60.0) <= 5.0


def test_the_last_word_of_a_neighbour_is_taken_over() -> None:
    pace = RateLimiter({})
    pace.merge(5.0)
    pace.merge(1.0)
    assert pace.per_second() == 1.0


def test_a_rate_that_nobody_waits_for_does_not_grow() -> None:
    learner = RateEstimator(per_second=5.0)
    for step in range(20):
        learner.record_send(START + step)
    assert not learner.grow(START + 100)
    learner.record_wait()
    assert not learner.grow(START + 100), "it is tried only after it was kept for a while"
    assert learner.grow(START + 200) and learner.per_second == 6.25


def test_a_faster_rate_is_tried_seldom_enough_that_refusals_are_few_of_all_calls() -> None:
    learner, tries = RateEstimator(per_second=5.0), []
    for call in range(2000):
        now = START + call / 5
        learner.record_wait()
        learner.record_send(now)
        if learner.grow(now):
            tries.append(call)
            learner.record_refusal(now, 0.2, 0.01, hinted=True)
    assert len(tries) <= 8 and tries[0] >= 15


def test_while_nothing_is_known_few_calls_are_under_way_of_which_nobody_knows() -> None:
    learner = RateEstimator()
    for second in range(6):
        sent = 0
        while learner.may_send(START + second):
            learner.record_send(START + second)
            sent += 1
        assert sent == MAX_UNCONFIRMED
    learner.record_answer(START + 5)
    assert learner.may_send(START + 5), "an answer is soon enough"


# How a provider counts.

WAYS = {
    Counting.SLIDING: WindowKind.SLIDING,
    Counting.FIXED: WindowKind.FIXED,
    Counting.TOKEN_BUCKET: WindowKind.BUCKET,
}


@given(
    st.sampled_from(sorted(WAYS)),
    st.lists(st.tuples(st.floats(0.0, 20.0), st.floats(0.0, 0.1)), min_size=1, max_size=60),
)
def test_what_fits_is_admitted_by_a_provider_that_counts_so(
    counting: Counting, wishes: list[tuple[float, float]]
) -> None:
    meter = UsageWindow(MINUTE, ProviderProfile(counting, window_start=0.0))
    provider, now, arrives = make_window(WAYS[counting], 10, 60.0), START, START
    for gap, on_the_way in wishes:
        now = max(now + gap, meter.next_allowed_at(1, now + gap))
        meter.record(1, now)
        arrives = max(arrives, now + on_the_way)
        assert provider.wait(arrives, 1) == 0
        provider.spend(arrives, 1)


@pytest.mark.parametrize("window", WindowKind)
def test_one_call_finds_out_how_a_provider_counts(window: WindowKind) -> None:
    world = World(make_window(window, 20, 60.0), rates=((Dimension.REQUESTS, Rate(20, 60.0)),))
    world.live(600.0)
    assert len(world.refused) <= 1
    possible = {WindowKind.SLIDING: 200, WindowKind.FIXED: 200, WindowKind.BUCKET: 219}[window]
    assert len(world.admitted) >= 0.96 * possible
    found = world.leasing.pool.bucket("key-1").limiter.profile.counting
    assert found is not None and WAYS[found] is window


def test_a_probe_that_is_refused_without_a_hint_leaves_the_strictest_way() -> None:
    world = World(make_window(WindowKind.FIXED, 20, 60.0), rates=((Dimension.REQUESTS, Rate(20, 60.0)),))
    world.mute = True
    world.live(600.0)
    assert len(world.refused) == 1
    assert world.leasing.pool.bucket("key-1").limiter.rates == {Dimension.REQUESTS: Rate(20, 60.0)}


def test_how_a_provider_counts_is_told_to_other_runs_and_not_found_out_again() -> None:
    first = World(make_window(WindowKind.FIXED, 20, 60.0), rates=((Dimension.REQUESTS, Rate(20, 60.0)),))
    first.live(120.0)
    second = World(make_window(WindowKind.FIXED, 20, 60.0), rates=((Dimension.REQUESTS, Rate(20, 60.0)),))
    for note in first.leasing.drain_notes():
        if isinstance(note, BucketLimitsLearned):
            second.leasing.pool.apply_note(note)
    second.live(300.0)
    assert len(first.refused) == 1 and not second.refused


def test_a_way_of_counting_that_proves_wrong_is_given_up_for_the_strictest() -> None:
    world = World(make_window(WindowKind.SLIDING, 20, 60.0), rates=((Dimension.REQUESTS, Rate(20, 60.0)),))
    world.leasing.pool.bucket("key-1").limiter.profile.merge(Counting.TOKEN_BUCKET, 0.0)
    world.live(600.0)
    assert len(world.refused) <= 8 and world.rate(300.0) >= 0.93 * 20 / 60


def test_a_window_that_nobody_named_is_found_and_used_at_once_when_it_opens() -> None:
    world = World(make_window(WindowKind.FIXED, 30, 60.0), latency=0.05)
    world.live(600.0)
    assert len(world.admitted) >= 290 and len(world.refused) <= 0.07 * len(world.admitted)
    last = [at for at in world.admitted if at > world.now - 50]
    assert last and last[-1] - last[0] < 10
