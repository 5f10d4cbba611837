"""Cooldown: how long a bucket sends nothing after its provider refused a call."""

from dataclasses import dataclass

from agentos.core.ratelimit.refusals import MAX_HINT, clamp_hint

PROBE_INTERVAL = 3600.0  # seconds between probes of an exhausted day
PROBATION = 0.25  # seconds in which the first call after a cooldown is sent alone
MIN_DOUBLED_WAIT = 0.5  # seconds; a hint of 0 would remain 0 however often it is doubled
MAX_DOUBLINGS = 12
NO_ACCESS_COOLDOWN = 6 * 3600.0  # seconds


@dataclass(slots=True)
class Cooldown:
    """Cooldown of one bucket and model after a rate limit (`until`) or a used-up day (`exhausted_until`).

    It follows the provider's own hint, and doubles the wait each time the hint turns out to be too short. The
    first call after a cooldown is sent alone (probation); others follow only if it is not refused. While a day's
    quota is exhausted, one probe per hour checks whether the provider still refuses. A call that was sent after the
    last refusal and succeeded ends the cooldown.

        seconds = cooldown.start(now, hint=30.0, reason="429")
        ...
        if not cooldown.blocks(now):
            cooldown.record_send(now)

    A `RateLimiter` avoids refusals; a cooldown handles those that happen anyway. Failures of the provider itself
    open its `CircuitBreaker` and start no cooldown.
    """

    until: float = 0.0
    exhausted_until: float = 0.0
    probe_at: float = 0.0
    consecutive_refusals: int = 0
    probation_until: float | None = None
    sent_since_refusal: int = 0
    refused_at: float = float("-inf")
    reason: str = ""
    probing: bool = False
    no_access: bool = False
    """The key may not use the model: waiting does not help, but a probe per hour notices if that changes."""

    def start(self, now: float, hint: float | None, reason: str, *, probing: bool = False) -> float:
        """Start or extend the cooldown after a rate limit; return its length in seconds.

        With `probing` the provider gave no hint, and the rate limiter decides when to send the next call: probably
        after `hint` seconds, but perhaps sooner, when another call has ended.
        """
        if self.probing or probing:
            # The rate limiter decides: the end of the cooldown is only for display, and no hint was followed in vain.
            self.until, self.consecutive_refusals = min(self.until, now), 1
        elif not self.limited(now):
            followed_in_vain = self.sent_since_refusal <= 1
            self.consecutive_refusals = self.consecutive_refusals + 1 if followed_in_vain else 1
        self.probing = probing
        self.sent_since_refusal, self.probation_until = 0, None
        seconds = clamp_hint(hint)
        if self.consecutive_refusals > 1:
            # At most twice the last wait. A hint that is longer anyway is followed as it is.
            doublings = min(self.consecutive_refusals - 1, MAX_DOUBLINGS)
            doubled = max(seconds, MIN_DOUBLED_WAIT) * 2**doublings
            seconds = max(seconds, min(doubled, 2 * max(self.until - self.refused_at, MIN_DOUBLED_WAIT)))
        seconds = min(seconds, MAX_HINT)
        self.until = max(self.until, now + seconds)
        self.refused_at, self.reason = now, reason
        return self.until - now

    def start_exhausted(self, now: float, seconds_to_reset: float, reason: str) -> float:
        """Cool down until the daily quota is reset; return the length in seconds."""
        self.exhausted_until = max(self.exhausted_until, now + seconds_to_reset)
        self.probe_at = now + PROBE_INTERVAL
        self.refused_at, self.reason = now, reason
        return self.exhausted_until - now

    def start_no_access(self, now: float, reason: str) -> None:
        self.start_exhausted(now, NO_ACCESS_COOLDOWN, reason)
        self.no_access = True

    def record_success(self, sent_at: float) -> bool:
        """End the cooldown if the call was sent after the last refusal; return whether an exhausted day ended."""
        if sent_at < self.refused_at:
            return False
        was_exhausted = bool(self.exhausted_until)
        self.clear()
        return was_exhausted

    def clear(self) -> None:
        self.until = self.exhausted_until = self.probe_at = 0.0
        self.consecutive_refusals, self.probation_until = 0, None
        self.probing = self.no_access = False

    def merge(
        self, until: float, exhausted_until: float, reason: str, at: float, *, no_access: bool = False
    ) -> None:
        """Adopt a cooldown that another run reported at `at`; the later end wins."""
        self.until, self.reason = max(self.until, until), reason
        self.refused_at = max(self.refused_at, at)
        if exhausted_until > self.exhausted_until:
            self.exhausted_until, self.probe_at = exhausted_until, max(self.probe_at, exhausted_until)
            self.no_access = no_access

    def record_send(self, now: float) -> None:
        """Note that a call was sent; the first one after a cooldown starts the probation."""
        self.sent_since_refusal += 1
        if self.sent_since_refusal == 1 and self.consecutive_refusals:
            self.probation_until = now + PROBATION
        if self.exhausted(now):
            self.probe_at = now + PROBE_INTERVAL

    def limited(self, now: float) -> bool:
        return now < self.until

    def exhausted(self, now: float) -> bool:
        return now < self.exhausted_until

    def is_over(self, now: float) -> bool:
        """Return whether nothing is left to wait for, including the probation."""
        return now >= self.until and now >= self.exhausted_until and now >= (self.probation_until or 0.0)

    def blocks(self, now: float) -> bool:
        """Return whether no call may be sent now."""
        on_probation = self.probation_until is not None and now < self.probation_until
        is_limited = self.limited(now) and not self.probing
        return on_probation or is_limited or (self.exhausted(now) and now < self.probe_at)

    def ends_at(self) -> float:
        """When calls are expected to succeed again; the hourly probe of an exhausted day does not count."""
        return max(self.until, self.exhausted_until)

    def next_allowed_at(self) -> float:
        """When the next call may be sent, even if only a probe."""
        if not self.consecutive_refusals and not self.exhausted_until:
            return self.until
        return max(self.until, self.probation_until or 0.0, min(self.exhausted_until, self.probe_at))
