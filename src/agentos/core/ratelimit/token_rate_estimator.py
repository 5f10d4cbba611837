"""What a provider counts that names no limit: calls, or what they weigh."""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentos.core.ratelimit.limits import Dimension, Rate
from agentos.core.ratelimit.windows import Reservation, TokenBucket

BELOW = 0.985
STEP_BACK = 0.95
# What an older measure still weighs.
OLDER = 0.5
# Where sizes differ less, calls and tokens tell the same.
UNEVEN = 0.3
# Two refused calls differ by so much of their size, and by so many seconds.
DIFFERENT = 0.1
LATER = 0.02


@dataclass(frozen=True, slots=True)
class Measure:
    """What was admitted in a second, counted in both ways, `over` so many seconds."""

    calls: float
    tokens: float
    over: float

    def off(self, other: "Measure") -> tuple[float, float]:
        """By how much another one of the same bucket differs, each way: the true way hardly does."""
        return abs(math.log(self.calls / other.calls)), abs(math.log(self.tokens / other.tokens))


@dataclass(slots=True)
class TokenRateEstimator:
    """Weighs what was admitted from one opening of a refused bucket to the next.

    At an opening there is room for exactly the call that was refused, so what has come in between is what
    was sent, and the difference of the two refused calls. That holds for every bucket that fills evenly.
    """

    per_second: float | None = None
    largest: float = 0.0
    opened_at: float | None = None
    _last: Reservation | None = None
    _measure: Measure | None = None
    _before: float | None = None
    _tokens: float = 0.0
    _seconds: float = 0.0

    def refused(
        self, past: Iterable[Reservation], refused: Reservation, opens_at: float, *, kept: bool
    ) -> tuple[float, float] | None:
        """By how much the two ways of counting differ from their last measure, if there was one.

        `past` is all that was sent, in order. What was sent after the last refused call may have been
        admitted before the bucket opened for that one: it was smaller. A rate that was `kept` to, and yet
        refused, had been measured too high.
        """
        last, self._last = self._last, refused
        began, self.opened_at = self.opened_at, opens_at
        sizes, since = _admitted(past, last, refused)
        if began is None or last is None or since == len(sizes) or opens_at <= began:
            return None
        tokens = sum(sizes[since:]) + _tokens(refused) - _tokens(last)
        if tokens <= 0:
            return None
        before, seconds = self._measure, opens_at - began
        self._measure = Measure((len(sizes) - since) / seconds, tokens / seconds, seconds)
        self.largest = max(self.largest, *sizes)
        if self.per_second is not None or _uneven(sizes):
            self._found(self._measure, kept)
        return self._measure.off(before) if before else None

    def refused_again(self, refused: Reservation, opens_at: float) -> tuple[float, float] | None:
        """Two calls of different size, refused at one time: if tokens count, there is room for the smaller sooner."""
        if self._last is None or self.opened_at is None:
            return None
        larger = _tokens(refused) / max(1.0, _tokens(self._last)) - 1.0
        later = opens_at - self.opened_at
        if abs(larger) < DIFFERENT or abs(later) < LATER:
            return None
        return (abs(larger), 0.0) if (larger > 0) == (later > 0) else (0.0, abs(larger))

    def _found(self, measure: Measure, kept: bool) -> None:
        self._tokens = OLDER * self._tokens + measure.tokens * measure.over
        self._seconds = OLDER * self._seconds + measure.over
        found = self._tokens / self._seconds
        if self._before is not None:
            self.per_second = max(self._before, min(found, self.per_second or found))
            self._before = None
        elif self.per_second is not None and kept:
            self.per_second = min(found, STEP_BACK * self.per_second)
        else:
            self.per_second = found

    def grow(self, factor: float) -> None:
        if self.per_second is not None:
            self._before, self.per_second = self.per_second, self.per_second * factor

    @property
    def _room(self) -> float:
        return _tokens(self._last) if self._last else 0.0

    @property
    def measured(self) -> Rate | None:
        """The largest call, and in what time as many tokens are admitted."""
        return Rate(self.largest, self.largest / self.per_second) if self.per_second else None

    @property
    def rate(self) -> Rate:
        return Rate(self.largest, self.largest / (BELOW * (self.per_second or 1.0)))

    def meter(self) -> TokenBucket:
        """One that keeps to what was found, from the last opening on."""
        return TokenBucket(self.rate, max(0.0, self.largest - self._room), self.opened_at or 0.0)

    def merge(self, per_second: float | None, largest: float) -> None:
        """Another run has measured."""
        self.per_second, self.largest = per_second, max(self.largest, largest)
        self._before = self._measure = self._last = self.opened_at = None


def _admitted(
    past: Iterable[Reservation], last: Reservation | None, refused: Reservation
) -> tuple[list[float], int]:
    """The sizes of all that was admitted before a refused call, and how many of them before the last such one.

    What is still under way is taken for one of usual size: before an answer, sizes are guesses.
    """
    sent = list(itertools.takewhile(lambda one: one is not refused, past))
    known = [_tokens(one) for one in sent if one.settled and not one.refused]
    usual = sum(known) / len(known) if known else 0.0
    sizes: list[float] = []
    since = 0
    for one in sent:
        if one is last:
            since = len(sizes)
        if not one.refused:
            sizes.append(_tokens(one) if one.settled else usual)
    return sizes, since


def _tokens(reservation: Reservation) -> float:
    return reservation.cost.amount(Dimension.TOKENS)


def _uneven(sizes: Sequence[float]) -> bool:
    return max(sizes) - min(sizes) > UNEVEN * sum(sizes) / len(sizes)
