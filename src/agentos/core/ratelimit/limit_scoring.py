"""Limit scoring: what limits predict for every refusal, and how well that agrees with the evidence."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from agentos.core.ratelimit.limit_evidence import HINT_TOLERANCE, Evidence, ObservedRefusal
from agentos.core.ratelimit.limits import Counting, Dimension, LearnedLimit
from agentos.core.ratelimit.windows import WINDOW_LENGTHS, slack_of

ODD_LENGTH_COST = 0.8  # of a window of an unusual length
CONTRADICTION, LATEST_CONTRADICTION = 3.0, 4.5  # cost of a refusal that a hypothesis does not explain
CERTAIN_ADMISSION_COST, MAX_CERTAIN_COST = 1.5, 6.0  # of calls admitted since the limits were explored
ADMISSION_COST, MAX_ADMISSION_COST = 1.5, 2.5  # of one, and of all calls that a hypothesis would have refused
MAX_REWARD = 3.0  # for a hint that was predicted exactly
CHANCE = 0.3  # the share of the time between two calls in which a prediction comes true by chance
AGE_WEIGHT = 0.7  # factor by which each later refusal lowers the weight of an earlier one
# Rewards for agreeing with what other keys of the provider, or earlier fits, have found: the same length and counting, the
# same length counted in another way, the same amount.
KNOWN_LENGTH, KNOWN_PERIOD, KNOWN_AMOUNT = 1.5, 1.0, 0.5
TOKENS_COST = 0.5
COUNTING_COST = {Counting.SLIDING: 0.0, Counting.FIXED: 1.0, Counting.TOKEN_BUCKET: 0.8}
ALIKE = 0.05  # two rates that differ by less than this share are treated as equal


@dataclass(slots=True)
class Hypothesis:
    """Limits, what they predict for every refusal, and what they cost."""

    limits: tuple[LearnedLimit, ...]
    opens: list[float]
    admission_cost: float
    fitted: int
    """How many of the latest refusals its figures were derived from: predicting these proves nothing."""
    concurrency: int | None = None
    cost: float = 0.0
    explained: int = 0
    explains_latest: bool = False
    sizes: tuple[float, ...] = ()
    """The size of an average call, as each limit counts it."""


def predict(evidence: Evidence, limit: LearnedLimit, fitted: int) -> Hypothesis:
    match limit.counting:
        case Counting.SLIDING:
            opens, cost = _sliding(evidence, limit)
        case Counting.FIXED:
            opens, cost = _fixed(evidence, limit)
        case Counting.TOKEN_BUCKET:
            levels = bucket_levels(evidence, limit.dimension, limit.rate.per_second, limit.amount)
            opens, cost = _bucket_openings(evidence, limit, levels), levels.overflow_cost
    size = evidence.sums[limit.dimension][-1] / len(evidence.calls)
    return Hypothesis((limit,), opens, min(cost, max_admission_cost(evidence)), fitted, sizes=(size,))


def _sliding(evidence: Evidence, limit: LearnedLimit) -> tuple[list[float], float]:
    sums, at, seconds = evidence.sums[limit.dimension], evidence.at, limit.seconds
    opens = []
    for refusal in evidence.refusals:
        end = evidence.admitted_before(refusal)
        needed = sums[end] + evidence.size(refusal, limit.dimension) - limit.amount
        leaving = bisect_left(sums, needed - 1e-6, hi=end)
        opens.append(max(refusal.call.at, at[leaving - 1] + seconds) if leaving else refusal.call.at)
    cost, first, span = 0.0, 0, max(0.0, seconds - slack_of(seconds) - 4 * HINT_TOLERANCE)
    for last, when in enumerate(at):
        while first < last and at[first] <= when - span:
            first += 1
        if sums[last + 1] - sums[first] > limit.amount + 1e-6:
            cost += admission_weight(evidence, when)
    return opens, cost


def _fixed(evidence: Evidence, limit: LearnedLimit) -> tuple[list[float], float]:
    sums, at, seconds = evidence.sums[limit.dimension], evidence.at, limit.seconds
    opens = []
    for refusal in evidence.refusals:
        sent = refusal.call.at
        begin = limit.start + (sent - limit.start) // seconds * seconds
        used = sums[evidence.admitted_before(refusal)] - sums[bisect_left(at, begin)]
        full = used + evidence.size(refusal, limit.dimension) > limit.amount + 1e-6
        opens.append(begin + seconds if full else sent)
    cost, window, used, margin = 0.0, None, 0.0, slack_of(seconds)
    for number, when in enumerate(at):
        current = (when - limit.start) // seconds
        if current != (when + margin - limit.start) // seconds:
            continue
        used = (used if current == window else 0.0) + sums[number + 1] - sums[number]
        window = current
        if used > limit.amount + 1e-6:
            cost += admission_weight(evidence, when)
    return opens, cost


@dataclass(slots=True)
class _Levels:
    """How full a token bucket was at each refusal, newest first, and the cost of admissions that overflowed it."""

    at_refusals: list[float]
    overflow_cost: float


def bucket_levels(evidence: Evidence, dimension: Dimension, per_second: float, capacity: float) -> _Levels:
    level, since, overflow, levels, call = 0.0, 0.0, 0.0, [], 0
    for refusal in reversed(evidence.refusals):
        end = evidence.admitted_before(refusal)
        while call < end:
            when, size = evidence.at[call], evidence.calls[call].cost.amount(dimension)
            level, since, call = max(0.0, level - (when - since) * per_second) + size, when, call + 1
            if level > capacity * 1.02 + 0.1 * size and not evidence.calls[call - 1].refused:
                overflow += admission_weight(evidence, when)
                level = capacity
        levels.append(max(0.0, level - max(0.0, refusal.call.at - since) * per_second))
    return _Levels(levels[::-1], overflow)


def _bucket_openings(evidence: Evidence, limit: LearnedLimit, levels: _Levels) -> list[float]:
    opens = []
    for refusal, level in zip(evidence.refusals, levels.at_refusals, strict=True):
        excess = level + evidence.size(refusal, limit.dimension) - limit.amount
        opens.append(refusal.call.at + max(0.0, excess) / limit.rate.per_second)
    return opens


def max_admission_cost(evidence: Evidence) -> float:
    return MAX_ADMISSION_COST if math.isinf(evidence.certain_since) else MAX_CERTAIN_COST


def admission_weight(evidence: Evidence, when: float) -> float:
    """Contradicting admissions count less the more refusals followed them, because limits change."""
    if when >= evidence.certain_since:
        return CERTAIN_ADMISSION_COST
    if not evidence.unchanged:
        return 0.0
    later = sum(1 for refusal in evidence.refusals if refusal.call.at > when)
    return ADMISSION_COST * AGE_WEIGHT ** (2 * later)


# Scores.


def rate(evidence: Evidence, hypothesis: Hypothesis, known: Sequence[LearnedLimit]) -> None:
    # What many admitted calls contradict gains nothing from agreeing with hints or with earlier findings.
    is_contradicted = hypothesis.admission_cost >= MAX_ADMISSION_COST
    cost = hypothesis.admission_cost
    cost += sum(_prior(limit, () if is_contradicted else known) for limit in hypothesis.limits)
    explained, last_admitted = 0, -1
    for age, (refusal, opens) in enumerate(zip(evidence.refusals, hypothesis.opens, strict=True)):
        weight, admitted = AGE_WEIGHT**age, evidence.admitted_before(refusal)
        is_repeated, last_admitted = admitted == last_admitted, admitted
        if _predicts(hypothesis, refusal, opens):
            explained += 1
            hypothesis.explains_latest = hypothesis.explains_latest or not age
            if age >= hypothesis.fitted and not is_repeated and not is_contradicted:
                cost -= weight * _reward(refusal, hypothesis, opens)
        else:
            cost += weight * (CONTRADICTION if age else LATEST_CONTRADICTION)
    hypothesis.cost, hypothesis.explained = cost, explained


def _predicts(hypothesis: Hypothesis, refusal: ObservedRefusal, opens: float) -> bool:
    if opens <= refusal.call.at + 1e-6:
        return False
    tolerance = HINT_TOLERANCE
    if any(limit.counting is Counting.TOKEN_BUCKET for limit in hypothesis.limits):
        tolerance += ALIKE * (refusal.opens_until - refusal.call.at) if refusal.hinted else 0.0
        tolerance += 0.3 / min(limit.rate.per_second for limit in hypothesis.limits)
    return refusal.opens_from - tolerance <= opens <= refusal.opens_until + tolerance


def _reward(refusal: ObservedRefusal, hypothesis: Hypothesis, opens: float) -> float:
    """The less likely a prediction was to come true by chance, the more it counts."""
    if not math.isfinite(refusal.opens_until):
        return 0.0
    scale = min(
        limit.seconds / (1.0 if limit.counting is Counting.FIXED else limit.amount / size)
        for limit, size in zip(hypothesis.limits, hypothesis.sizes, strict=True)
    )
    outside = max(refusal.opens_from - opens, opens - refusal.opens_until, 0.0)
    return min(MAX_REWARD, max(0.0, math.log(CHANCE * scale / max(refusal.width + 2 * outside, 1e-3))))


def _prior(limit: LearnedLimit, known: Sequence[LearnedLimit]) -> float:
    cost = COUNTING_COST[limit.counting]
    if limit.counting is not Counting.TOKEN_BUCKET:
        cost += WINDOW_LENGTHS.get(limit.seconds, ODD_LENGTH_COST)
    cost += TOKENS_COST if limit.dimension is Dimension.TOKENS else 0.0
    alike = [
        one
        for one in known
        if one.dimension is limit.dimension and abs(one.seconds - limit.seconds) <= ALIKE * limit.seconds
    ]
    same = [one for one in alike if one.counting is limit.counting]
    if not same and limit.counting is not Counting.TOKEN_BUCKET:
        # A sliding window that was learned may have been a fixed one, or the other way round.
        cost -= KNOWN_PERIOD if any(one.counting is not Counting.TOKEN_BUCKET for one in alike) else 0.0
    if same:
        cost -= KNOWN_LENGTH
        cost -= KNOWN_AMOUNT if any(one.amount == limit.amount for one in same) else 0.0
    return cost
