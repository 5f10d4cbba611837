"""Limit fitting: which limits explain the calls that a provider admitted and refused."""

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from agentos.core.ratelimit.limits import Counting, Dimension, LearnedLimit, LearnedLimits
from agentos.core.ratelimit.windows import Reservation, slack_of

# Lengths of windows in seconds, each with how unusual it is.
WINDOW_LENGTHS = {
    1.0: 0.0, 2.0: 0.6, 3.0: 1.2, 5.0: 0.4, 6.0: 1.2, 10.0: 0.2, 12.0: 1.2, 15.0: 0.6, 20.0: 0.6, 30.0: 0.3,
    45.0: 1.2, 60.0: 0.0, 90.0: 1.2, 120.0: 0.6, 300.0: 0.4, 600.0: 0.4, 900.0: 0.8, 1800.0: 0.8, 3600.0: 0.2,
}  # fmt: skip
ODD_LENGTH_COST = 0.8  # of a window of any other length
SHORT_HISTORY = 3  # calls before a refusal without a hint that may have left the window when it opened
MIN_LENGTH = 0.05  # seconds
HINT_TOLERANCE = 0.005  # seconds, beyond the time that the refusal took
ROUNDING = 1.0  # seconds by which a hint in whole seconds may be too long
CONTRADICTION, LATEST_CONTRADICTION = 3.0, 4.5  # cost of a refusal that a hypothesis does not explain
CERTAIN_ADMISSION_COST, MAX_CERTAIN_COST = 1.5, 6.0  # of calls admitted since the limits were explored
ADMISSION_COST, MAX_ADMISSION_COST = (
    1.5,
    2.5,
)  # of one, and of all admitted calls that a hypothesis would have refused
MAX_REWARD = 3.0  # for a hint that was predicted exactly
CHANCE = 0.3  # the share of the time between two calls in which a prediction comes true by chance
AGE_WEIGHT = 0.7  # of a refusal, for each later one
ACCEPTABLE_CHANGE_COST = -1.5  # for limits that explain the latest refusal only
ACCEPTABLE_COST = 0.9  # a hypothesis that costs more is not obeyed
KNOWN_LENGTH, KNOWN_AMOUNT = (
    1.5,
    0.5,
)  # rewards for what other keys of the provider, or earlier fits, have found
TOKENS_COST, SECOND_LIMIT_COST, CONCURRENCY_COST = 0.5, 1.0, 0.6
# A concurrency limit gives no hint, or always the same few whole seconds: no server knows when a call will end.
MAX_CONCURRENCY_HINT, ODD_HINT_COST = 2.0, 2.0  # seconds, cost
COUNTING_COST = {Counting.SLIDING: 0.0, Counting.FIXED: 1.0, Counting.TOKEN_BUCKET: 0.8}
CONCURRENCY_REWARD = 0.7  # for a refusal at exactly the expected number of calls in flight
MIN_SIZE_SPREAD = 0.3  # of the mean; with calls more alike, requests and tokens cannot be told apart
FITTED_CALLS = 400
FITTED_REFUSALS = 8
REFUSALS_SINCE_CHANGE = (5, 3)
AMOUNT_SOURCES = 4  # of the latest refusals
ALIKE = 0.05  # two rates that differ by less are the same


@dataclass(slots=True)
class ObservedRefusal:
    """A refused call, and between which times its limit opened: from its hint, or from the next admission.

    `known_at` is when the refusal arrived, `in_flight` the number of other calls then unanswered.
    """

    call: Reservation
    known_at: float
    in_flight: int
    opens_from: float
    opens_until: float
    hinted: bool
    is_rounded: bool = False

    @classmethod
    def of(cls, call: Reservation, now: float, in_flight: int, hint: float | None) -> "ObservedRefusal":
        if hint is None:
            return cls(call, now, in_flight, call.at, math.inf, hinted=False)
        is_rounded = hint > 0 and hint == int(hint)
        earlier = 2 * (now - call.at) + HINT_TOLERANCE + (ROUNDING if is_rounded else 0.0)
        until = now + hint + HINT_TOLERANCE
        opens_from = max(call.at, until - HINT_TOLERANCE - earlier)
        return cls(call, now, in_flight, opens_from, until, hinted=True, is_rounded=is_rounded)

    @property
    def opens_at(self) -> float:
        """When a call had to be sent to be admitted: the best guess, with the same time on the way for all calls."""
        took = self.known_at - self.call.at
        return self.opens_until - took - HINT_TOLERANCE if self.hinted else self.opens_until

    @property
    def window_start(self) -> float:
        """The earliest time at which a fixed window may have opened, if the hint is not rounded."""
        return self.opens_at - (self.known_at - self.call.at) - HINT_TOLERANCE

    @property
    def hint(self) -> float:
        """The seconds that the refusal asked to wait, if it did."""
        return self.opens_until - self.known_at - HINT_TOLERANCE

    @property
    def width(self) -> float:
        return self.opens_until - self.opens_from


@dataclass(slots=True)
class Evidence:
    """The admitted calls in order, and the latest refusals, newest first."""

    calls: list[Reservation]
    refusals: list[ObservedRefusal]
    counts_refused: bool = False
    unchanged: bool = True
    """Whether the limits are taken to be the same all the time, so that every admission counts."""
    certain_since: float = math.inf
    """What was admitted since is allowed by the present limits, whether or not they have changed before."""
    at: list[float] = field(init=False)
    sums: dict[Dimension, list[float]] = field(init=False)

    def __post_init__(self) -> None:
        self.at = [call.at for call in self.calls]
        self.sums = {}
        for dimension in (Dimension.REQUESTS, Dimension.TOKENS):
            sums = [0.0]
            for call in self.calls:
                sums.append(sums[-1] + call.cost.amount(dimension))
            self.sums[dimension] = sums

    @classmethod
    def of(
        cls,
        history: Iterable[Reservation],
        refusals: Sequence[ObservedRefusal],
        *,
        counts_refused: bool,
        certain_since: float,
    ) -> "Evidence":
        counted = [call for call in history if counts_refused or not call.refused]
        latest = list(refusals)[: -FITTED_REFUSALS - 1 : -1]
        return cls(
            counted[-FITTED_CALLS:], latest, counts_refused=counts_refused, certain_since=certain_since
        )

    def dimensions(self) -> tuple[Dimension, ...]:
        sizes = [call.cost.amount(Dimension.TOKENS) for call in self.calls]
        if not sizes or max(sizes) - min(sizes) <= MIN_SIZE_SPREAD * sum(sizes) / len(sizes):
            return (Dimension.REQUESTS,)
        return (Dimension.REQUESTS, Dimension.TOKENS)

    def size(self, refusal: ObservedRefusal, dimension: Dimension) -> float:
        """What the refused call needs beyond what is counted already."""
        return 0.0 if self.counts_refused else refusal.call.cost.amount(dimension)

    def admitted_before(self, refusal: ObservedRefusal) -> int:
        """Calls sent before the refusal was known: they may have overtaken the refused one."""
        return bisect_right(self.at, refusal.known_at)


@dataclass(slots=True)
class Hypothesis:
    """Limits, what they predict for every refusal, and what they cost."""

    limits: tuple[LearnedLimit, ...]
    opens: list[float]
    admission_cost: float
    fitted: int
    """The latest refusals that its numbers were taken from: predicting these proves nothing."""
    concurrency: int | None = None
    cost: float = 0.0
    explained: int = 0
    explains_latest: bool = False
    sizes: tuple[float, ...] = ()
    """Of an average call, as each limit counts it."""


def fit_limits(evidence: Evidence, known: Iterable[LearnedLimits], now: float) -> LearnedLimits | None:
    """Return the limits that explain the evidence best, or None if nothing explains it well enough.

    `known` are the limits of other keys of the provider, and those obeyed so far.
    """
    if not evidence.refusals or all(call.refused for call in evidence.calls):
        return None
    known = tuple(known)
    chosen, changed = _best(evidence, known), False
    if len(evidence.refusals) > 1 and (
        chosen is None or not chosen.explains_latest or chosen.cost > ACCEPTABLE_COST
    ):
        # Perhaps the limits have changed, and only the latest refusals tell of the new ones.
        since_change = _since_change(evidence, known)
        chosen, changed = since_change or chosen, since_change is not None
    if chosen is None or chosen.cost > ACCEPTABLE_COST:
        return None
    return LearnedLimits(chosen.limits, chosen.concurrency, chosen.explained, now, changed)


def _since_change(evidence: Evidence, known: Sequence[LearnedLimits]) -> Hypothesis | None:
    """Return the limits that explain several of the latest refusals, or the very latest without any doubt."""
    for count in (*REFUSALS_SINCE_CHANGE, 1) if evidence.refusals[0].hinted else (1,):
        if count < len(evidence.refusals):
            latest = _best(replace(evidence, refusals=evidence.refusals[:count], unchanged=False), known)
            acceptable = ACCEPTABLE_COST if count > 1 else ACCEPTABLE_CHANGE_COST
            if latest is not None and latest.explained == count and latest.cost <= acceptable:
                return latest
    return None


def _best(evidence: Evidence, known: Sequence[LearnedLimits]) -> Hypothesis | None:
    known_limits = [limit for learned in known for limit in learned.limits]
    by_dimension: list[list[Hypothesis]] = []
    for dimension in evidence.dimensions():
        found = [
            _hypothesis(evidence, limit, fitted)
            for limit, fitted in _candidates(evidence, dimension, known_limits)
        ]
        for hypothesis in found:
            _rate(evidence, hypothesis, known_limits)
        by_dimension.append(sorted(found, key=lambda one: one.cost))
    best = [*by_dimension[0][:1], *_concurrent(evidence, known)]
    if len(by_dimension) > 1:
        best += by_dimension[1][:1]
        best += _combined(evidence, by_dimension[0], by_dimension[1], known_limits)
    return min(best, key=lambda one: one.cost, default=None)


# Candidates.


def _candidates(
    evidence: Evidence, dimension: Dimension, known: Sequence[LearnedLimit]
) -> Iterator[tuple[LearnedLimit, int]]:
    """Yield every limit worth a look, with the number of refusals that its numbers were taken from."""
    newest = evidence.refusals[0]
    lengths = {
        *WINDOW_LENGTHS,
        *(limit.seconds for limit in known if limit.counting is not Counting.TOKEN_BUCKET),
    }
    odd: list[float] = []
    if math.isfinite(newest.opens_until):
        end = evidence.admitted_before(newest)
        odd = [newest.opens_at - at for at in evidence.at[max(0, end - SHORT_HISTORY) : end]]
        lengths.update(seconds for seconds in odd if seconds >= MIN_LENGTH)
    for seconds in lengths:
        amounts = {
            _sliding_amount(evidence, dimension, seconds, one) for one in evidence.refusals[:AMOUNT_SOURCES]
        }
        for amount in amounts - {0.0}:
            yield LearnedLimit(dimension, Counting.SLIDING, amount, seconds), int(seconds in odd)
        if newest.hinted and seconds > newest.opens_until - newest.call.at - ROUNDING:
            amount = _fixed_amount(evidence, dimension, seconds, newest)
            if amount:
                yield LearnedLimit(dimension, Counting.FIXED, amount, seconds, newest.window_start), 1
    for bucket in _buckets(evidence, dimension):
        yield bucket, 2
    for limit in known:
        if limit.dimension is dimension and limit.counting is Counting.TOKEN_BUCKET:
            yield limit, 0


def _sliding_amount(
    evidence: Evidence, dimension: Dimension, seconds: float, refusal: ObservedRefusal
) -> float:
    """Return how much the window admits if it opened when one of the calls left it; 0 if none did then."""
    end = evidence.admitted_before(refusal)
    first = bisect_left(evidence.at, refusal.opens_from - seconds - HINT_TOLERANCE)
    last = bisect_right(evidence.at, refusal.opens_until - seconds, hi=end)
    if first >= last:
        return 0.0
    sums = evidence.sums[dimension]
    if dimension is Dimension.REQUESTS:
        # A hint that fits several calls: the window was as full as it has ever been.
        return sums[end] - sums[first]
    size = refusal.call.cost.amount(dimension)
    return _roundest(sums[end] - sums[first + 1] + size, sums[end] - sums[first] + size)


def _fixed_amount(
    evidence: Evidence, dimension: Dimension, seconds: float, refusal: ObservedRefusal
) -> float:
    end, sums = evidence.admitted_before(refusal), evidence.sums[dimension]
    used = sums[end] - sums[bisect_left(evidence.at, refusal.window_start - seconds)]
    if dimension is Dimension.REQUESTS or not used:
        return used
    return _roundest(used, used + refusal.call.cost.amount(dimension))


def _buckets(evidence: Evidence, dimension: Dimension) -> Iterator[LearnedLimit]:
    """Measure a token bucket from one opening to the next: at each it has room for exactly the refused call."""
    newest = evidence.refusals[0]
    earlier = [one for one in evidence.refusals[1:] if one.opens_at <= newest.call.at + HINT_TOLERANCE]
    if not earlier or not math.isfinite(newest.opens_until):
        return
    for one in {id(one): one for one in (earlier[0], earlier[-1])}.values():
        if bucket := _measured_bucket(evidence, dimension, one):
            yield bucket
            if not evidence.unchanged and dimension is Dimension.REQUESTS:
                # What it holds cannot be told from calls that were sent before it changed.
                yield replace(bucket, amount=1.0, seconds=bucket.length)


def _measured_bucket(evidence: Evidence, dimension: Dimension, since: ObservedRefusal) -> LearnedLimit | None:
    newest, sums = evidence.refusals[0], evidence.sums[dimension]
    admitted = sums[evidence.admitted_before(newest)] - sums[bisect_right(evidence.at, since.known_at)]
    size = newest.call.cost.amount(dimension)
    amount = admitted + size - since.call.cost.amount(dimension)
    if amount <= 0 or newest.opens_at <= since.opens_at:
        return None
    per_second = amount / (newest.opens_at - since.opens_at)
    level = _levels(evidence, dimension, per_second, math.inf).at_refusals[0]
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


# Predictions.


def _hypothesis(evidence: Evidence, limit: LearnedLimit, fitted: int) -> Hypothesis:
    match limit.counting:
        case Counting.SLIDING:
            opens, cost = _sliding(evidence, limit)
        case Counting.FIXED:
            opens, cost = _fixed(evidence, limit)
        case Counting.TOKEN_BUCKET:
            levels = _levels(evidence, limit.dimension, limit.rate.per_second, limit.amount)
            opens, cost = _bucket_openings(evidence, limit, levels), levels.overflow_cost
    size = evidence.sums[limit.dimension][-1] / len(evidence.calls)
    return Hypothesis((limit,), opens, min(cost, _max_admission_cost(evidence)), fitted, sizes=(size,))


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
            cost += _admission_weight(evidence, when)
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
            cost += _admission_weight(evidence, when)
    return opens, cost


@dataclass(slots=True)
class _Levels:
    """How full a token bucket was at each refusal, newest first, and the cost of admissions that overflowed it."""

    at_refusals: list[float]
    overflow_cost: float


def _levels(evidence: Evidence, dimension: Dimension, per_second: float, capacity: float) -> _Levels:
    level, since, overflow, levels, call = 0.0, 0.0, 0.0, [], 0
    for refusal in reversed(evidence.refusals):
        end = evidence.admitted_before(refusal)
        while call < end:
            when, size = evidence.at[call], evidence.calls[call].cost.amount(dimension)
            level, since, call = max(0.0, level - (when - since) * per_second) + size, when, call + 1
            if level > capacity * 1.02 + 0.1 * size and not evidence.calls[call - 1].refused:
                overflow += _admission_weight(evidence, when)
                level = capacity
        levels.append(max(0.0, level - max(0.0, refusal.call.at - since) * per_second))
    return _Levels(levels[::-1], overflow)


def _bucket_openings(evidence: Evidence, limit: LearnedLimit, levels: _Levels) -> list[float]:
    opens = []
    for refusal, level in zip(evidence.refusals, levels.at_refusals, strict=True):
        excess = level + evidence.size(refusal, limit.dimension) - limit.amount
        opens.append(refusal.call.at + max(0.0, excess) / limit.rate.per_second)
    return opens


def _max_admission_cost(evidence: Evidence) -> float:
    return MAX_ADMISSION_COST if math.isinf(evidence.certain_since) else MAX_CERTAIN_COST


def _admission_weight(evidence: Evidence, when: float) -> float:
    """Contradicting admissions count less the more refusals came after them: limits change."""
    if when >= evidence.certain_since:
        return CERTAIN_ADMISSION_COST
    if not evidence.unchanged:
        return 0.0
    later = sum(1 for refusal in evidence.refusals if refusal.call.at > when)
    return ADMISSION_COST * AGE_WEIGHT ** (2 * later)


# Scores.


def _rate(evidence: Evidence, hypothesis: Hypothesis, known: Sequence[LearnedLimit]) -> None:
    cost = hypothesis.admission_cost + sum(_prior(limit, known) for limit in hypothesis.limits)
    explained, last_admitted = 0, -1
    for age, (refusal, opens) in enumerate(zip(evidence.refusals, hypothesis.opens, strict=True)):
        weight, admitted = AGE_WEIGHT**age, evidence.admitted_before(refusal)
        is_repeated, last_admitted = admitted == last_admitted, admitted
        if _predicts(hypothesis, refusal, opens):
            explained += 1
            hypothesis.explains_latest = hypothesis.explains_latest or not age
            if age >= hypothesis.fitted and not is_repeated:
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
    same = [one for one in known if one.dimension is limit.dimension and one.counting is limit.counting]
    same = [one for one in same if abs(one.seconds - limit.seconds) <= ALIKE * limit.seconds]
    if same:
        cost -= KNOWN_LENGTH
        cost -= KNOWN_AMOUNT if any(one.amount == limit.amount for one in same) else 0.0
    return cost


def _combined(
    evidence: Evidence, requests: list[Hypothesis], tokens: list[Hypothesis], known: Sequence[LearnedLimit]
) -> Iterator[Hypothesis]:
    """Yield limits of both dimensions, counted alike: a refusal is explained by the one that opens last."""
    for first, second in itertools.product(requests, tokens):
        one, other = first.limits[0], second.limits[0]
        is_bucket = one.counting is Counting.TOKEN_BUCKET
        if one.counting is other.counting and (is_bucket or one.seconds == other.seconds):
            opens = [max(pair) for pair in zip(first.opens, second.opens, strict=True)]
            cost = min(_max_admission_cost(evidence), first.admission_cost + second.admission_cost)
            both = Hypothesis(
                first.limits + second.limits,
                opens,
                cost,
                max(first.fitted, second.fitted),
                sizes=first.sizes + second.sizes,
            )
            _rate(evidence, both, known)
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
            _admission_weight(evidence, when)
            for when, others in zip(evidence.at, in_flight, strict=True)
            if others >= slots
        )
        is_odd = are_hints_odd or not (evidence.unchanged or slots in known_slots)
        cost = CONCURRENCY_COST + (ODD_HINT_COST if is_odd else 0.0)
        cost += min(_max_admission_cost(evidence), admissions)
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
    # A call that ends while the next is on its way has left its slot at the provider.
    newest = evidence.refusals[0]
    on_the_way = 2 * (newest.known_at - newest.call.at) + HINT_TOLERANCE
    ends = sorted(call.ended_at for call in evidence.calls)
    return [
        max(0, number - bisect_right(ends, call.at + on_the_way))
        for number, call in enumerate(evidence.calls)
    ]
