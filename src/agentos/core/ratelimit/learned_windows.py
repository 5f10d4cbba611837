"""Learned windows: usage counted against limits found from refusals, and when to try more than they allow."""

from dataclasses import dataclass, field

from agentos.core.ratelimit.limits import CallCost, Counting, Dimension, LearnedLimits
from agentos.core.ratelimit.windows import UsageWindow

MIN_TRIAL_WAIT = 0.05  # seconds; skipping a shorter wait would prove nothing
MIN_EARLY = 0.01  # seconds; the same for an early trial
SLOT_TRIAL_DELAY = 1.0  # seconds after the last call before a trial for more slots
MAX_EARLY_SHARE = 0.5  # of the window: the most that a trial without a hint may be early
MIN_TRIAL_SHARE = (
    0.3  # of the average time between two allowed calls: the shortest wait that is worth a trial
)
MAX_SLOT_WAIT = 120.0  # seconds after the last call; then a call is sent although all learned slots are taken
MAX_LEARNED_WAIT = 3600.0  # seconds after the last call; then a call is sent regardless of what was learned


@dataclass(slots=True)
class LearnedWindows:
    """The limits that a rate limiter has learned, with one usage window for each."""

    limits: LearnedLimits | None = None
    windows: dict[Dimension, UsageWindow] = field(default_factory=dict)

    def is_full(self, in_flight: int) -> bool:
        """Whether as many calls are in flight as the provider was found to allow."""
        slots = self.limits.concurrency if self.limits else None
        return slots is not None and in_flight >= slots

    def next_allowed_at(self, cost: CallCost, now: float, in_flight: int, latest: float) -> float:
        """When a call of this cost fits into all windows, at most `MAX_LEARNED_WAIT` after the last call was sent.

        So a wrong hypothesis delays a call, but never holds it back for good.
        """
        if self.limits is None:
            return now
        if self.is_full(in_flight):
            return max(now, latest + MAX_SLOT_WAIT)
        at = now
        for dimension, window in self.windows.items():
            at = max(at, window.next_allowed_at(cost.amount(dimension), now))
        return max(now, min(at, latest + MAX_LEARNED_WAIT))

    def calls_in(self, seconds: float, cost: CallCost) -> float:
        """How many calls of this cost the limits allow in that time."""
        limits = self.limits.limits if self.limits else ()
        rates = [limit.rate.per_second / max(1.0, cost.amount(limit.dimension)) for limit in limits]
        return max(0.0, seconds) * min(rates, default=0.0)

    def trial_at(self, allowed_at: float, now: float, in_flight: int, *, hinted: bool) -> float | None:
        """When to send a call that exceeds the limits; None if they allow it soon anyway.

        `hinted`: whether the last refusal said how long to wait.
        """
        if self.is_full(in_flight):
            return now
        windows = self.windows.values()
        spacing = max((1.0 / window.rate.per_second for window in windows), default=0.0)
        # Token buckets have no slack, however long they take to refill.
        extended = (window for window in windows if window.counting is not Counting.TOKEN_BUCKET)
        slack = max((window.slack for window in extended), default=0.0)
        if allowed_at - now <= max(MIN_TRIAL_WAIT, 2 * slack, MIN_TRIAL_SHARE * spacing):
            return None
        if not hinted:
            # A refusal without a hint reveals little, so wait until a refusal is less likely.
            longest = max((window.rate.seconds for window in windows), default=0.0)
            return max(now, allowed_at - MAX_EARLY_SHARE * longest)
        return now

    def early_trial_at(
        self, allowed_at: float, now: float, share: float, in_flight: int, latest: float
    ) -> float | None:
        """When to send a call earlier than the limits allow, by a share of a window's length; None if it makes no difference."""
        if self.is_full(in_flight):
            return max(now, latest + SLOT_TRIAL_DELAY)
        lengths = [
            window.rate.seconds / (window.rate.amount if window.counting is Counting.TOKEN_BUCKET else 1.0)
            for window in self.windows.values()
        ]
        early = share * max(lengths, default=0.0)
        if early <= MIN_EARLY or allowed_at <= now + MIN_EARLY:
            return None
        return max(now, allowed_at - early)
