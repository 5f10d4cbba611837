"""Limit candidates: the limits that may explain the latest refusal, with the figures that the evidence suggests."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace

from agentos.core.ratelimit.limit_evidence import HINT_TOLERANCE, ROUNDING, Evidence, ObservedRefusal
from agentos.core.ratelimit.limit_scoring import bucket_levels
from agentos.core.ratelimit.limits import Counting, Dimension, LearnedLimit
from agentos.core.ratelimit.windows import WINDOW_LENGTHS

SHORT_HISTORY = 3  # calls before a refusal, any of which may have left the window when it opened
MAX_ODD_WIDTH = 0.2  # without a hint, an unusual length must be known to within this share of it
MIN_LENGTH = 0.05  # seconds
AMOUNT_SOURCES = 4  # latest refusals from which amounts are derived
AVERAGED_CALLS = 60  # latest calls; their average rate is the lowest that is tried
RATE_STEP, RATE_STEPS, REFINEMENT = 1.25, 13, 200  # factor, number of such steps, finer steps in each
MAX_OVERFLOW = 0.1  # cost of admissions that a rate would have refused
LEVEL_TOLERANCE = 0.1  # calls


def limit_candidates(
    evidence: Evidence, dimension: Dimension, known: Sequence[LearnedLimit]
) -> Iterator[tuple[LearnedLimit, int]]:
    """Yield every limit worth testing, with the number of refusals that its figures were derived from."""
    odd = _odd_lengths(evidence)
    lengths = {
        *WINDOW_LENGTHS,
        *(limit.seconds for limit in known if limit.counting is not Counting.TOKEN_BUCKET),
        *odd,
    }
    for seconds in lengths:
        amounts = {
            _sliding_amount(evidence, dimension, seconds, one) for one in evidence.refusals[:AMOUNT_SOURCES]
        }
        for amount in amounts - {0.0}:
            yield LearnedLimit(dimension, Counting.SLIDING, amount, seconds), int(seconds in odd)
        for start in _fixed_starts(evidence, seconds, is_odd=seconds in odd):
            if amount := _fixed_amount(evidence, dimension, seconds, start):
                yield LearnedLimit(dimension, Counting.FIXED, amount, seconds, start), 1
    for bucket in _buckets(evidence, dimension):
        yield bucket, 2
    if dimension is Dimension.REQUESTS:
        for bucket in _quick_buckets(evidence):
            yield bucket, 2
    for limit in known:
        if limit.dimension is dimension and limit.counting is Counting.TOKEN_BUCKET:
            yield limit, 0


def _odd_lengths(evidence: Evidence) -> list[float]:
    """The lengths with which the window opened, after the newest refusal, just when one of the latest calls left it."""
    newest = evidence.refusals[0]
    if not math.isfinite(newest.opens_until):
        return []
    end = evidence.admitted_before(newest)
    lengths = [newest.opens_at - at for at in evidence.at[max(0, end - SHORT_HISTORY) : end]]
    if not newest.hinted:
        lengths = [seconds for seconds in lengths if newest.width <= MAX_ODD_WIDTH * seconds]
    return [seconds for seconds in lengths if seconds >= MIN_LENGTH]


def _sliding_amount(
    evidence: Evidence, dimension: Dimension, seconds: float, refusal: ObservedRefusal
) -> float:
    """Return how much the window admits if it opened when one of the calls left it; 0 if no call left it then."""
    end = evidence.admitted_before(refusal)
    first = bisect_left(evidence.at, refusal.opens_from - seconds - HINT_TOLERANCE)
    last = bisect_right(evidence.at, refusal.opens_until - seconds, hi=end)
    if first >= last:
        return 0.0
    sums = evidence.sums[dimension]
    if dimension is Dimension.REQUESTS:
        # If the hint fits several calls, assume the largest amount.
        return sums[end] - sums[first]
    size = refusal.call.cost.amount(dimension)
    return _roundest(sums[end] - sums[first + 1] + size, sums[end] - sums[first] + size)


def _fixed_starts(evidence: Evidence, seconds: float, *, is_odd: bool) -> list[float]:
    """When a fixed window may have opened after the newest refusal: as its hint says, or at a time that fits all refusals."""
    newest = evidence.refusals[0]
    if newest.hinted:
        is_possible = seconds > newest.opens_until - newest.call.at - ROUNDING
        return [newest.window_start] if is_possible else []
    if is_odd or not math.isfinite(newest.opens_until) or newest.opens_until - newest.call.at > seconds:
        return []
    low, high = newest.opens_from, newest.opens_until
    for refusal in evidence.refusals[1:]:
        periods = round((high - refusal.opens_until) / seconds) * seconds
        first = max(low, refusal.opens_from + periods)
        last = min(high, refusal.opens_until + periods)
        if math.isfinite(refusal.opens_until) and first < last:
            low, high = first, last
    # The whole window before it must have been watched.
    return [high, (low + high) / 2] if low - seconds >= evidence.at[0] else []


def _fixed_amount(evidence: Evidence, dimension: Dimension, seconds: float, start: float) -> float:
    newest, sums = evidence.refusals[0], evidence.sums[dimension]
    used = sums[evidence.admitted_before(newest)] - sums[bisect_left(evidence.at, start - seconds)]
    if dimension is Dimension.REQUESTS or not used:
        return used
    return _roundest(used, used + newest.call.cost.amount(dimension))


def _buckets(evidence: Evidence, dimension: Dimension) -> Iterator[LearnedLimit]:
    """Measure a token bucket from one opening to the next: at each opening it has room for exactly the refused call."""
    newest = evidence.refusals[0]
    earlier = [one for one in evidence.refusals[1:] if one.opens_at <= newest.call.at + HINT_TOLERANCE]
    if not earlier or not math.isfinite(newest.opens_until):
        return
    for one in {id(one): one for one in (earlier[0], earlier[-1])}.values():
        if bucket := _measured_bucket(evidence, dimension, one):
            yield bucket
            if not evidence.unchanged and dimension is Dimension.REQUESTS:
                # Its capacity cannot be inferred from calls that were sent before it changed.
                yield replace(bucket, amount=1.0, seconds=bucket.length)


def _quick_buckets(evidence: Evidence) -> Iterator[LearnedLimit]:
    """Find token buckets that refill within a second: their hints are rounded up to one second, and so reveal nothing.

    At every refusal the bucket had room for less than one call. The higher its rate, the emptier it was: so for each
    capacity, the possible rates are an interval, which each refusal narrows down. Its middle is tried.
    """
    refusals = evidence.refusals
    if len(refusals) < 2 or not refusals[0].is_rounded or refusals[0].hint > ROUNDING + HINT_TOLERANCE:
        return
    latest = evidence.at[-AVERAGED_CALLS:]
    slowest = len(latest) / max(HINT_TOLERANCE, refusals[0].known_at - latest[0]) / RATE_STEP

    def rate(step: int) -> float:
        return slowest * math.pow(RATE_STEP, step / REFINEMENT)

    def levels(step: int) -> list[float]:
        return bucket_levels(evidence, Dimension.REQUESTS, rate(step), math.inf).at_refusals

    def spread(found: list[float]) -> float:
        return max(found) - min(found) if max(found) else math.inf

    steps = range(RATE_STEPS * REFINEMENT)
    alike = min(map(levels, steps[::REFINEMENT]), key=spread)
    for capacity in {max(1, math.ceil(level - LEVEL_TOLERANCE)) for level in (max(alike), min(alike) + 1)}:

        def is_fast_enough(step: int, capacity: int = capacity) -> bool:
            found = bucket_levels(evidence, Dimension.REQUESTS, rate(step), capacity)
            return found.overflow_cost < MAX_OVERFLOW

        def is_too_fast(step: int, capacity: int = capacity) -> bool:
            return min(levels(step)) <= capacity - 1

        slow = bisect_left(steps, 1, key=is_fast_enough)
        fast = bisect_left(steps, 1, key=is_too_fast) - 1
        per_second = rate(max(0, min((slow + fast) // 2, fast)))
        yield LearnedLimit(Dimension.REQUESTS, Counting.TOKEN_BUCKET, float(capacity), capacity / per_second)


def _measured_bucket(evidence: Evidence, dimension: Dimension, since: ObservedRefusal) -> LearnedLimit | None:
    newest, sums = evidence.refusals[0], evidence.sums[dimension]
    admitted = sums[evidence.admitted_before(newest)] - sums[bisect_right(evidence.at, since.known_at)]
    size = newest.call.cost.amount(dimension)
    amount = admitted + size - since.call.cost.amount(dimension)
    if amount <= 0 or newest.opens_at <= since.opens_at:
        return None
    per_second = amount / (newest.opens_at - since.opens_at)
    level = bucket_levels(evidence, dimension, per_second, math.inf).at_refusals[0]
    capacity = level - per_second * (newest.opens_at - newest.call.at) + evidence.size(newest, dimension)
    if dimension is Dimension.REQUESTS:
        capacity = max(1.0, float(round(capacity)))
    capacity = max(capacity, size)
    return LearnedLimit(dimension, Counting.TOKEN_BUCKET, capacity, capacity / per_second)


def _roundest(low: float, high: float) -> float:
    """Return the roundest number in [low, high): limits are round numbers."""
    step = 10.0 ** math.floor(math.log10(max(1.0, high)))
    while step >= 1.0:
        for size in (step, step / 2):
            number = math.ceil(low / size) * size
            if number < high:
                return number
        step /= 10
    return low
