"""The parts that the limit estimator learns with: its pace, its probes, its trials."""

import pytest
from bench.keypool.limiters import Kind, Limit, Limiter

from agentos.core.ratelimit.adaptive_pace import AdaptivePace
from agentos.core.ratelimit.learned_windows import LearnedWindows
from agentos.core.ratelimit.limit_evidence import Evidence, ObservedRefusal
from agentos.core.ratelimit.limit_fitting import fit_limits
from agentos.core.ratelimit.limit_probes import LimitProbes
from agentos.core.ratelimit.limits import CallCost, Counting, Dimension, LearnedLimit, LearnedLimits, Rate
from agentos.core.ratelimit.provider_profile import ProviderProfile
from agentos.core.ratelimit.unconfirmed_calls import FIRST_UNCONFIRMED, UnconfirmedCalls
from agentos.core.ratelimit.windows import Reservation, UsageWindow

# An adaptive pace.


@pytest.mark.parametrize("burst", [1.0, 5.0, 20.0])
@pytest.mark.parametrize("start", [0.3, 1.0, 3.0])
def test_a_pace_finds_the_rate_of_a_bucket_from_above_and_from_below(start: float, burst: float) -> None:
    limiter = Limiter(Limit(Kind.BUCKET, 20, 1.0, burst=burst), (), 0.0)
    pace, now = AdaptivePace(20 * start), 0.0
    outcomes: list[tuple[float, bool]] = []
    while len(outcomes) < 1500:
        is_admitted = limiter.wait(now, 1) == 0
        outcomes.append((now, is_admitted))
        if is_admitted:
            limiter.admit(now, 1)
            pace.record_admission()
        else:
            pace.record_refusal(now, now + 0.01)
        now += 1 / pace.per_second
    settled = outcomes[500:]
    admitted = sum(is_admitted for _, is_admitted in settled)
    assert 0.95 * 20 <= admitted / (settled[-1][0] - settled[0][0]) <= 1.01 * 20
    assert len(settled) - admitted <= 0.04 * len(settled)


def test_calls_that_were_sent_before_a_refusal_was_known_do_not_slow_the_pace_again() -> None:
    pace = AdaptivePace(10.0)
    assert pace.record_refusal(sent_at=1.0, now=1.5)
    slower = pace.per_second
    assert not pace.record_refusal(sent_at=1.4, now=1.6)
    assert pace.per_second == slower < 10.0


# Probes.


def test_a_key_that_gets_further_than_another_one_starts_with_few_calls_at_once_again() -> None:
    profile = ProviderProfile()
    profile.record_first_refusal(10)
    further = UnconfirmedCalls(profile, confirmed=21)
    assert further.cap_while_exploring(0, owner=2) <= FIRST_UNCONFIRMED
    further.confirmed += 40
    assert further.cap_while_exploring(0, owner=2) > 40, "the more it gets, the more it tries"


def test_probes_leave_out_no_usual_length_after_the_first_seconds() -> None:
    probes = LimitProbes(ProviderProfile())
    probes.start(0.1, 0)
    at, sent = 0.1, []
    while at < 70:
        at = probes.next_at(refused_at=at, started_at=0.0, filled_at=0.0, in_flight=0)
        probes.record_refusal(at, 0.0, 0)
        sent.append(at)
    assert [round(at) for at in sent][:6] == [1, 5, 10, 15, 20, 30]


def test_a_probe_waits_until_all_calls_that_filled_the_window_have_left_it() -> None:
    probes = LimitProbes(ProviderProfile())
    probes.start(0.9, 0)
    assert probes.next_at(0.9, started_at=0.0, filled_at=0.8, in_flight=0) > 1.8


# Trials and limits that were found late.


def test_trials_are_rarer_where_a_refusal_costs_more_calls() -> None:
    def interval(cost: float) -> int:
        profile = ProviderProfile()
        for _ in range(10):
            profile.record_trial_cost(cost)
        calls = 0
        while not profile.may_try:
            profile.record_send()
            calls += 1
        return calls

    assert interval(5.0) == pytest.approx(5 * interval(1.0), rel=0.01)


def test_a_bucket_found_late_is_fuller_than_its_size_by_one_call_at_most() -> None:
    window = UsageWindow(Rate(1, 2.0), Counting.TOKEN_BUCKET)
    for second in range(60):
        window.replay(1.0, float(second))
    assert window.next_allowed_at(1.0, 60.0) <= 64.0


def test_a_bucket_that_refills_at_once_is_found_although_its_hints_are_rounded_up() -> None:
    limiter = Limiter(Limit(Kind.BUCKET, 15, 1.0, burst=5), (), 0.0)
    calls, refusals, now = [], [], 0.0
    for pause in (0.05, 0.0, 0.02):
        while True:
            calls.append(call := Reservation(now))
            call.refused = limiter.wait(now, 1) > 0
            if call.refused:
                refusals.append(ObservedRefusal.of(call, now + 0.001, 0, 1.0))
                break
            limiter.admit(now, 1)
            now += pause
        now += 1.01
    evidence = Evidence.of(calls, refusals, counts_refused=False, certain_since=0.0)
    found = fit_limits(evidence, (), now)
    assert found is not None
    (limit,) = found.limits
    assert (limit.counting, limit.amount) == (Counting.TOKEN_BUCKET, 5.0)
    assert limit.rate.per_second == pytest.approx(15, rel=0.1)


def test_what_a_trial_costs_is_known_for_limits_on_tokens_too() -> None:
    limits = LearnedLimits((LearnedLimit(Dimension.TOKENS, Counting.SLIDING, 12000.0, 1.0),))
    assert LearnedWindows(limits).calls_in(1.0, CallCost(300, 100)) == 30.0
