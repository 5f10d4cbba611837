"""Limit evidence: what a provider admitted and refused, and when it started admitting calls again."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from agentos.core.ratelimit.limits import Dimension
from agentos.core.ratelimit.windows import Reservation

HINT_TOLERANCE = 0.005  # seconds, beyond the time that the refusal took
ROUNDING = 1.0  # seconds by which a hint in whole seconds may be too long
MIN_SIZE_SPREAD = 0.3  # of the mean; with calls more alike, requests and tokens cannot be told apart
FITTED_CALLS = 400
FITTED_REFUSALS = 8


@dataclass(slots=True)
class ObservedRefusal:
    """A refused call, and the interval in which its limit opened, taken from its hint or from the next admission.

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
        """When a call had to be sent to be admitted: a best guess, assuming the same latency for all calls."""
        took = self.known_at - self.call.at
        return self.opens_until - took - HINT_TOLERANCE if self.hinted else self.opens_until

    @property
    def window_start(self) -> float:
        """The earliest time at which a fixed window may have opened, if the hint is not rounded."""
        return self.opens_at - (self.known_at - self.call.at) - HINT_TOLERANCE

    @property
    def hint(self) -> float:
        """The seconds that the refusal asked to wait; meaningless without a hint."""
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
    """Whether the limits are assumed never to have changed, so that every admission counts."""
    certain_since: float = math.inf
    """The present limits allow everything admitted since then, whether or not they changed before."""
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
        if sizes and sizes_vary(sizes):
            return (Dimension.REQUESTS, Dimension.TOKENS)
        return (Dimension.REQUESTS,)

    def size(self, refusal: ObservedRefusal, dimension: Dimension) -> float:
        """What the refused call needs in addition to what is already counted."""
        return 0.0 if self.counts_refused else refusal.call.cost.amount(dimension)

    def admitted_before(self, refusal: ObservedRefusal) -> int:
        """The number of calls sent before the refusal arrived; they may have overtaken the refused one."""
        return bisect_right(self.at, refusal.known_at)


def sizes_vary(sizes: Sequence[float]) -> bool:
    """Whether calls differ enough for limits of requests and of tokens to be told apart."""
    return max(sizes) - min(sizes) > MIN_SIZE_SPREAD * sum(sizes) / len(sizes)
