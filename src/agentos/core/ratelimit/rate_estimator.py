"""Rate estimator: finds a request limit that the provider does not state, from what it admits and refuses."""

from collections import deque
from dataclasses import dataclass, field

from agentos.core.ratelimit.limits import Rate
from agentos.core.ratelimit.provider_profile import ProviderProfile

MAX_UNCONFIRMED = 3  # calls in flight of which it is not yet known whether they are refused
SAFETY_FACTOR = 0.985  # share of an estimated rate that is used
OPENING_TOLERANCE = 0.05  # seconds; openings closer than this are treated as equal
MIN_GROWTH_CALLS = 4  # calls that a raised rate has to serve before it may be raised again
SETTLED_INTERVALS = 2  # after this many, a rate that is refused without having been raised is too high
STEP_BACK = 0.88  # factor for such a rate
FAILED_HINT_FACTOR = 0.8  # factor for a rate at which not even one call was admitted
OLD_INTERVAL_WEIGHT = 0.5  # of earlier intervals in the average
MIN_INTERVAL = 0.001  # seconds, against division by zero
# A hint this long, worth this many calls, means a fixed window rather than a token bucket.
MIN_WINDOW = 2.0  # seconds
MIN_WINDOW_CALLS = 4
MIN_WINDOW_FILL = 0.5  # share of a known window that must be used before a refusal confirms it
MAX_WINDOW_HINT = 1.1  # times the window's length
HISTORY_SIZE = 2000  # calls


@dataclass(slots=True)
class RateEstimator:
    """Estimates the request rate of one bucket and model for which no limit is configured or stated.

    It works in intervals. An interval starts when a cooldown ends and ends when the provider, having
    refused, would admit again; the calls admitted in it, divided by its length, are the provider's rate.
    Sent evenly at that rate, calls pass token buckets, fixed and sliding windows alike. If the hints point
    to a fixed window, the interval that started with its opening gives its size: `window` is its length in
    seconds, and all its calls may be sent at once.

    Until the first refusal only a few unconfirmed calls may be in flight. Later, a rate that is the
    bottleneck is raised step by step; a step that is refused is taken back. The limiter calls
    `record_send`, `record_answer`, `record_refusal`, and sends at `rate` (None means still unknown).
    """

    profile: ProviderProfile = field(default_factory=ProviderProfile)
    per_second: float | None = None
    window: float | None = None
    _unconfirmed: deque[float] = field(default_factory=deque)
    _confirmed: int = 0
    _interval_start: float | None = None
    _intervals: int = 0
    _measured_calls: float = 0.0
    _measured_seconds: float = 0.0
    _rate_changed_at: float | None = None
    _rate_before_growth: float | None = None
    _is_bottleneck: bool = False
    _longest_hint: float = 0.0
    _has_refused: bool = False
    _is_no_fixed_window: bool = False
    _sent_at: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY_SIZE))

    @property
    def rate(self) -> Rate | None:
        if self.per_second is None:
            return None
        if self.window is None:
            return Rate(1.0, 1.0 / (SAFETY_FACTOR * self.per_second))
        return Rate(max(1.0, self.per_second * self.window // 1), self.window)

    # While the rate is unknown.

    def may_send(self, now: float) -> bool:
        """Limit the unconfirmed calls, so that a refusal of one means few refusals of others."""
        if self.per_second is not None:
            return True
        self._confirm(now)
        calls = self._confirmed + len(self._unconfirmed)
        return len(self._unconfirmed) < (1 if self.profile.is_refusal_likely(calls) else MAX_UNCONFIRMED)

    def next_confirmation_at(self) -> float:
        """When the oldest unconfirmed call, if not refused by then, counts as admitted."""
        return (self._unconfirmed[0] if self._unconfirmed else 0.0) + self.profile.refusal_latency

    def record_send(self, now: float) -> None:
        self._interval_start = now if self._interval_start is None else self._interval_start
        self._confirm(now)
        self._unconfirmed.append(now)
        self._sent_at.append(now)
        self.profile.record_send()

    def record_answer(self, sent_at: float) -> None:
        if sent_at in self._unconfirmed:
            self._unconfirmed.remove(sent_at)
            self._confirmed += 1

    def _confirm(self, now: float) -> None:
        """Count calls as admitted that were not refused for longer than refusals take."""
        while self._unconfirmed and self._unconfirmed[0] <= now - self.profile.refusal_latency:
            self._unconfirmed.popleft()
            self._confirmed += 1

    # After a refusal.

    def cancel(self, sent_at: float) -> None:
        """Remove a refused call from the history of admitted ones."""
        if sent_at in self._sent_at:
            self._sent_at.remove(sent_at)

    def record_refusal(self, sent_at: float, hint: float, latency: float, *, hinted: bool) -> None:
        """End the interval and update the estimate.

        `hint` is how long after `sent_at` the call would have been admitted: the provider's own figure if
        `hinted`, else a default. `latency` is how long the refusal took.
        """
        self.profile.record_refusal_latency(latency)
        self._longest_hint = max(self._longest_hint, hint)
        opens_at = sent_at + hint
        admitted = self._confirmed + sum(1 for at in self._unconfirmed if at < sent_at)
        if not self._has_refused:
            self.profile.record_first_refusal(admitted)
        start = opens_at if self._interval_start is None else self._interval_start
        seconds = max(MIN_INTERVAL, opens_at - start)
        if not (hinted and self._is_fixed_window(sent_at, hint, admitted / seconds)):
            # A fixed window that has just opened would have admitted the call.
            self._is_no_fixed_window = self._is_no_fixed_window or self._has_refused
            self.window = None
            self._update_even_rate(admitted, seconds)
        elif self.window is not None:
            self._update_window(self._sent_between(opens_at - self.window, sent_at), self.window)
        elif self._has_refused:
            self._update_window(admitted, seconds)
        else:
            # The first interval did not start with an opening: measure the next one.
            self.per_second = None
        self._start_interval(opens_at)

    def record_repeated_refusal(self, opens_at: float) -> None:
        """Note a refusal of a call sent before the last refusal: a later opening means refused calls count."""
        if self._interval_start is None:
            return
        self.profile.counts_refused = opens_at > self._interval_start + OPENING_TOLERANCE
        self._interval_start = max(self._interval_start, opens_at)

    def _is_fixed_window(self, sent_at: float, hint: float, rate: float) -> bool:
        if self._is_no_fixed_window:
            return False
        if self.window is None or self.per_second is None:
            return hint >= MIN_WINDOW and hint * rate >= MIN_WINDOW_CALLS
        used = self._sent_between(sent_at + hint - self.window, sent_at)
        return (
            hint <= MAX_WINDOW_HINT * self.window and used >= MIN_WINDOW_FILL * self.per_second * self.window
        )

    def _sent_between(self, start: float, end: float) -> int:
        return sum(start < at < end for at in self._sent_at)

    def _update_window(self, admitted: int, seconds: float) -> None:
        self.per_second, self.window = max(admitted, 1) / seconds, seconds
        if self._rate_before_growth is not None:
            self.per_second = max(self._rate_before_growth, self.per_second)
            self._rate_before_growth = None
            self.profile.revoke_growth()

    def _update_even_rate(self, admitted: int, seconds: float) -> None:
        if admitted:
            self._add_interval(admitted + self.profile.counts_refused, seconds)
        elif not self.profile.counts_refused:
            # Refused again after waiting as long as the hint said: the refused call itself was counted.
            self.profile.counts_refused = True
        elif self.per_second is not None:
            self.per_second *= FAILED_HINT_FACTOR

    def _add_interval(self, admitted: int, seconds: float) -> None:
        """Average over the intervals, without the first: it includes what was saved up before it."""
        self._intervals += 1
        weight = 0.0 if self._intervals <= 2 else OLD_INTERVAL_WEIGHT
        self._measured_calls = weight * self._measured_calls + admitted
        self._measured_seconds = weight * self._measured_seconds + max(seconds, MIN_INTERVAL)
        measured = self._measured_calls / self._measured_seconds
        if self._rate_before_growth is None:
            if self._intervals > SETTLED_INTERVALS and self.per_second is not None:
                measured = min(measured, STEP_BACK * self.per_second)
            self.per_second = measured
            return
        self.per_second = max(self._rate_before_growth, min(measured, self.per_second or measured))
        self._rate_before_growth = None
        self.profile.revoke_growth()

    def _start_interval(self, at: float) -> None:
        self._unconfirmed.clear()
        self._confirmed, self._is_bottleneck = 0, False
        self._interval_start = self._rate_changed_at = at
        self._has_refused = True

    # Raising the rate.

    def record_wait(self) -> None:
        """Note that a call had to wait for this rate: it is the bottleneck and worth raising."""
        self._is_bottleneck = True

    def grow(self, now: float) -> bool:
        """Raise the rate if it is the bottleneck and was kept for long enough; return whether it was raised."""
        if self.per_second is None or not self._is_bottleneck or not self.profile.may_grow:
            return False
        if self._rate_changed_at is None:
            self._rate_changed_at = now
        # A raised rate proves nothing before the provider's own window is over.
        if now - self._rate_changed_at < max(self._longest_hint, MIN_GROWTH_CALLS / self.per_second):
            return False
        if self._rate_before_growth is not None:
            self.profile.confirm_growth()
        self._rate_before_growth, self.per_second = self.per_second, self.per_second * self.profile.growth
        self._rate_changed_at, self._is_bottleneck = now, False
        self.profile.record_growth()
        return True

    def merge(self, per_second: float, window: float | None = None) -> None:
        """Take over the estimate of another run: a lower one is a refused step, a higher one a new step."""
        if self.per_second is not None and per_second < self.per_second:
            if self._rate_before_growth is not None:
                self.profile.revoke_growth()
            self._rate_before_growth = None
            self._unconfirmed.clear()
            self._confirmed, self._interval_start = 0, None
        elif self.per_second is not None and per_second > self.per_second:
            self._rate_before_growth = self.per_second
            self.profile.record_growth()
        self.per_second, self.window = per_second, window
        self._rate_changed_at, self._is_bottleneck = None, False
