"""Token rate estimator: finds a token limit that the provider does not state, and tells it from a request limit."""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentos.core.ratelimit.limits import Dimension, Rate
from agentos.core.ratelimit.provider_profile import CountingErrors
from agentos.core.ratelimit.rate_estimator import SAFETY_FACTOR
from agentos.core.ratelimit.windows import Reservation, TokenBucket

STEP_BACK = 0.95  # factor for a rate that was kept and yet refused
OLD_SAMPLE_WEIGHT = 0.5  # of earlier samples in the average
MIN_SIZE_SPREAD = 0.3  # of the mean; with calls more alike, requests and tokens cannot be told apart
# Two calls refused together are comparable if they differ by this much.
MIN_SIZE_DIFFERENCE = 0.1  # of the call's tokens
MIN_OPENING_DIFFERENCE = 0.02  # seconds


@dataclass(frozen=True, slots=True)
class RateSample:
    """What was admitted per second over `seconds`, counted both ways."""

    requests: float
    tokens: float
    seconds: float

    def errors_against(self, other: "RateSample") -> CountingErrors:
        """Compare two samples of one bucket: what the provider really counts hardly changes."""
        return CountingErrors(
            abs(math.log(self.requests / other.requests)), abs(math.log(self.tokens / other.tokens))
        )


@dataclass(slots=True)
class TokenRateEstimator:
    """Estimates the token rate of one bucket and model for which no token limit is configured or stated.

    It measures what was admitted from one opening of a refused bucket to the next. At an opening there is
    room for exactly the refused call, so the room that came up in between equals the calls sent in between
    plus the difference of the two refused calls. That holds for every bucket that refills evenly.

    `per_second` is None until enough is known. `largest_call` is in tokens.
    """

    per_second: float | None = None
    largest_call: float = 0.0
    opened_at: float | None = None
    _last_refused: Reservation | None = None
    _sample: RateSample | None = None
    _rate_before_growth: float | None = None
    _measured_tokens: float = 0.0
    _measured_seconds: float = 0.0

    def record_refusal(
        self, history: Iterable[Reservation], refused: Reservation, opens_at: float, *, paced: bool
    ) -> CountingErrors | None:
        """Take a sample; return how far it is from the last one, if there is one.

        `history` is all that was sent, in order. Calls sent after the last refused one all count, even if
        they were small enough to be admitted before the bucket opened for it. `paced` means that the
        estimated token rate was kept: refused all the same, it was too high.
        """
        last, self._last_refused = self._last_refused, refused
        start, self.opened_at = self.opened_at, opens_at
        sizes, first = _admitted_sizes(history, last, refused)
        if start is None or last is None or first == len(sizes) or opens_at <= start:
            return None
        tokens = sum(sizes[first:]) + _tokens(refused) - _tokens(last)
        if tokens <= 0:
            return None
        previous, seconds = self._sample, opens_at - start
        self._sample = RateSample((len(sizes) - first) / seconds, tokens / seconds, seconds)
        self.largest_call = max(self.largest_call, *sizes)
        if self.per_second is not None or _is_spread(sizes):
            self._update(self._sample, paced)
        return self._sample.errors_against(previous) if previous else None

    def record_repeated_refusal(self, refused: Reservation, opens_at: float) -> CountingErrors | None:
        """Compare two calls of different size refused together: under a token limit the smaller fits sooner."""
        if self._last_refused is None or self.opened_at is None:
            return None
        size_difference = _tokens(refused) / max(1.0, _tokens(self._last_refused)) - 1.0
        delay = opens_at - self.opened_at
        if abs(size_difference) < MIN_SIZE_DIFFERENCE or abs(delay) < MIN_OPENING_DIFFERENCE:
            return None
        if (size_difference > 0) == (delay > 0):
            return CountingErrors(requests=abs(size_difference), tokens=0.0)
        return CountingErrors(requests=0.0, tokens=abs(size_difference))

    def _update(self, sample: RateSample, paced: bool) -> None:
        self._measured_tokens = OLD_SAMPLE_WEIGHT * self._measured_tokens + sample.tokens * sample.seconds
        self._measured_seconds = OLD_SAMPLE_WEIGHT * self._measured_seconds + sample.seconds
        measured = self._measured_tokens / self._measured_seconds
        if self._rate_before_growth is not None:
            self.per_second = max(self._rate_before_growth, min(measured, self.per_second or measured))
            self._rate_before_growth = None
        elif self.per_second is not None and paced:
            self.per_second = min(measured, STEP_BACK * self.per_second)
        else:
            self.per_second = measured

    def grow(self, factor: float) -> None:
        if self.per_second is not None:
            self._rate_before_growth, self.per_second = self.per_second, self.per_second * factor

    @property
    def measured_rate(self) -> Rate | None:
        """The largest call, and the seconds in which that many tokens are admitted."""
        return Rate(self.largest_call, self.largest_call / self.per_second) if self.per_second else None

    @property
    def rate(self) -> Rate:
        """`measured_rate` with a safety margin."""
        return Rate(self.largest_call, self.largest_call / (SAFETY_FACTOR * (self.per_second or 1.0)))

    def token_bucket(self) -> TokenBucket:
        """Return a bucket at this rate that at the last opening has room for exactly the refused call."""
        room = _tokens(self._last_refused) if self._last_refused else 0.0
        return TokenBucket(self.rate, max(0.0, self.largest_call - room), self.opened_at or 0.0)

    def merge(self, per_second: float | None, largest_call: float) -> None:
        """Take over the estimate of another run."""
        self.per_second, self.largest_call = per_second, max(self.largest_call, largest_call)
        self._rate_before_growth = self._sample = self._last_refused = self.opened_at = None


def _admitted_sizes(
    history: Iterable[Reservation], last: Reservation | None, refused: Reservation
) -> tuple[list[float], int]:
    """Return the sizes of all calls admitted before `refused`, and the index of the first one after `last`.

    A call in flight counts with the average size, because its own is only an estimate.
    """
    sent = list(itertools.takewhile(lambda call: call is not refused, history))
    known = [_tokens(call) for call in sent if call.settled and not call.refused]
    average = sum(known) / len(known) if known else 0.0
    sizes: list[float] = []
    first = 0
    for call in sent:
        if call is last:
            first = len(sizes)
        if not call.refused:
            sizes.append(_tokens(call) if call.settled else average)
    return sizes, first


def _tokens(reservation: Reservation) -> float:
    return reservation.cost.amount(Dimension.TOKENS)


def _is_spread(sizes: Sequence[float]) -> bool:
    return max(sizes) - min(sizes) > MIN_SIZE_SPREAD * sum(sizes) / len(sizes)
