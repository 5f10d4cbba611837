"""Limit fitting: which limits explain the calls that a provider admitted and refused.

An opening is the time at which the provider admits calls again after refusals.
"""

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from agentos.core.ratelimit.limit_candidates import AMOUNT_SOURCES, limit_candidates
from agentos.core.ratelimit.limit_evidence import HINT_TOLERANCE, Evidence
from agentos.core.ratelimit.limit_scoring import (
    AGE_WEIGHT,
    CONTRADICTION,
    KNOWN_LENGTH,
    LATEST_CONTRADICTION,
    Hypothesis,
    admission_weight,
    max_admission_cost,
    predict,
    rate,
)
from agentos.core.ratelimit.limits import Counting, Dimension, LearnedLimit, LearnedLimits

ACCEPTABLE_COST = 0.9  # a hypothesis that costs more is rejected
CONSISTENT_COST = 2.6  # the same, for one that explains several openings and contradicts nothing
ACCEPTABLE_CHANGE_COST = -1.2  # the same, for limits that explain the latest opening only
NEGLIGIBLE_COST = 0.1  # of admissions that contradict a hypothesis
USUAL_DROP = 1.5  # doublings by which a limit may fall; each further one costs 1
SECOND_LIMIT_COST, CONCURRENCY_COST = 1.0, 0.6
# A concurrency limit gives no hint, or always the same few whole seconds, because no server knows when a call will end.
MAX_CONCURRENCY_HINT, ODD_HINT_COST = 2.0, 2.0  # seconds, cost
CONCURRENCY_REWARD = 0.7  # for a refusal at exactly the expected number of calls in flight
REFUSALS_SINCE_CHANGE = (5, 3)  # numbers of latest refusals that may all be later than a change of limits


def fit_limits(evidence: Evidence, known: Iterable[LearnedLimits], now: float) -> LearnedLimits | None:
    """Return the limits that explain the evidence best, or None if nothing explains it well enough.

    `known` are the limits of other keys of the provider, and those enforced so far.
    """
    if not evidence.refusals or all(call.refused for call in evidence.calls):
        return None
    known = tuple(known)
    chosen, changed = _best(evidence, known), False
    acceptable = ACCEPTABLE_COST
    if chosen is not None and _is_consistent(evidence, chosen):
        acceptable = CONSISTENT_COST
    if len(evidence.refusals) > 1 and (
        chosen is None or not chosen.explains_latest or chosen.cost > acceptable
    ):
        # Perhaps the limits have changed, and only the latest refusals reflect the new ones.
        since_change = _since_change(evidence, known)
        chosen, changed = since_change or chosen, since_change is not None
    if chosen is None or chosen.cost > acceptable:
        return None
    return LearnedLimits(chosen.limits, chosen.concurrency, chosen.explained, now, changed)


def _is_consistent(evidence: Evidence, chosen: Hypothesis) -> bool:
    """Whether limits explain refusals before several openings and contradict nothing, which is hardly chance."""
    openings = {one.opens_until for one in evidence.refusals}
    return (
        chosen.explained == len(evidence.refusals)
        and chosen.admission_cost < NEGLIGIBLE_COST
        and len(openings) > 1
    )


def _since_change(evidence: Evidence, known: Sequence[LearnedLimits]) -> Hypothesis | None:
    """Return the limits that explain several of the latest refusals, or the latest one beyond doubt."""
    for count in (*REFUSALS_SINCE_CHANGE, 1) if evidence.refusals[0].hinted else _latest_openings(evidence):
        if count < len(evidence.refusals):
            latest = _best(replace(evidence, refusals=evidence.refusals[:count], unchanged=False), known)
            openings = {one.opens_until for one in evidence.refusals[:count]}
            acceptable = ACCEPTABLE_COST if len(openings) > 1 else ACCEPTABLE_CHANGE_COST
            if latest is None or latest.explained < count:
                continue
            if latest.cost + _drop_cost(evidence, latest) <= acceptable:
                return latest
    return None


def _drop_cost(evidence: Evidence, hypothesis: Hypothesis) -> float:
    """The cost of a limit far below the average of what was admitted: most limits change by a factor of two."""
    elapsed = evidence.refusals[0].known_at - evidence.at[0]
    if len(evidence.at) < 2 or elapsed <= 0:
        return 0.0
    average = len(evidence.at) / elapsed
    rates = [limit.rate.per_second for limit in hypothesis.limits if limit.dimension is Dimension.REQUESTS]
    return max(0.0, math.log2(average / min(rates)) - USUAL_DROP) if rates else 0.0


def _latest_openings(evidence: Evidence) -> list[int]:
    """How many refusals precede the latest two openings, how many the latest one, and 1 for the latest refusal alone.

    Refusals before the same admitted call belong to one opening.
    """
    openings = [
        len(list(group)) for _, group in itertools.groupby(one.opens_until for one in evidence.refusals)
    ]
    return list(dict.fromkeys((sum(openings[:2]), openings[0], 1)))


def _best(evidence: Evidence, known: Sequence[LearnedLimits]) -> Hypothesis | None:
    known_limits = [limit for learned in known for limit in learned.limits]
    by_dimension: list[list[Hypothesis]] = []
    for dimension in evidence.dimensions():
        found = [
            predict(evidence, limit, fitted)
            for limit, fitted in limit_candidates(evidence, dimension, known_limits)
        ]
        for hypothesis in found:
            rate(evidence, hypothesis, known_limits)
        by_dimension.append(sorted(found, key=lambda one: one.cost))
    best = [*by_dimension[0][:1], *_concurrent(evidence, known)]
    if len(by_dimension) > 1:
        best += by_dimension[1][:1]
        best += _combined(evidence, by_dimension[0], by_dimension[1], known_limits)
    return min(best, key=lambda one: one.cost, default=None)


def _combined(
    evidence: Evidence, requests: list[Hypothesis], tokens: list[Hypothesis], known: Sequence[LearnedLimit]
) -> Iterator[Hypothesis]:
    """Yield pairs of limits, one per dimension, counted alike: a refusal is explained by the one that opens last."""
    for first, second in itertools.product(requests, tokens):
        one, other = first.limits[0], second.limits[0]
        is_bucket = one.counting is Counting.TOKEN_BUCKET
        if one.counting is other.counting and (is_bucket or one.seconds == other.seconds):
            opens = [max(pair) for pair in zip(first.opens, second.opens, strict=True)]
            cost = min(max_admission_cost(evidence), first.admission_cost + second.admission_cost)
            both = Hypothesis(
                first.limits + second.limits,
                opens,
                cost,
                max(first.fitted, second.fitted),
                sizes=first.sizes + second.sizes,
            )
            rate(evidence, both, known)
            both.cost += SECOND_LIMIT_COST
            yield both


def _concurrent(evidence: Evidence, known: Iterable[LearnedLimits]) -> Iterator[Hypothesis]:
    """Yield the hypotheses that the provider limits the calls in flight."""
    in_flight = _in_flight_at_send(evidence)
    known_slots = {learned.concurrency for learned in known}
    hints = [refusal.hint for refusal in evidence.refusals if refusal.hinted]
    are_hints_odd = len({round(hint) for hint in hints}) > 1 or any(
        hint > MAX_CONCURRENCY_HINT or abs(hint - round(hint)) > 1e-3 for hint in hints[:1]
    )
    for slots in {refusal.in_flight for refusal in evidence.refusals[:AMOUNT_SOURCES]} - {0}:
        admissions = sum(
            admission_weight(evidence, when)
            for when, others in zip(evidence.at, in_flight, strict=True)
            if others >= slots
        )
        is_odd = are_hints_odd or not (evidence.unchanged or slots in known_slots)
        cost = CONCURRENCY_COST + (ODD_HINT_COST if is_odd else 0.0)
        cost += min(max_admission_cost(evidence), admissions)
        cost -= KNOWN_LENGTH if slots in known_slots else 0.0
        explained = 0
        for age, refusal in enumerate(evidence.refusals):
            if refusal.in_flight >= slots:
                explained += 1
                is_exact = refusal.in_flight == slots and not is_odd
                cost -= AGE_WEIGHT**age * (CONCURRENCY_REWARD if is_exact else 0.0)
            else:
                cost += AGE_WEIGHT**age * (CONTRADICTION if age else LATEST_CONTRADICTION)
        explains_latest = evidence.refusals[0].in_flight >= slots
        yield Hypothesis((), [], admissions, 0, slots, cost, explained, explains_latest)


def _in_flight_at_send(evidence: Evidence) -> list[int]:
    # A call that ends while the next one is on its way no longer occupies a slot at the provider.
    newest = evidence.refusals[0]
    on_the_way = 2 * (newest.known_at - newest.call.at) + HINT_TOLERANCE
    ends = sorted(call.ended_at for call in evidence.calls)
    return [
        max(0, number - bisect_right(ends, call.at + on_the_way))
        for number, call in enumerate(evidence.calls)
    ]
