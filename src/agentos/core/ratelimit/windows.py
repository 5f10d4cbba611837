"""Usage windows: how much of one limit was used, and when the next call fits into it."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from agentos.core.constants import DAY
from agentos.core.ratelimit.limits import CallCost, Counting, Dimension, Rate

# A window is kept a little longer than the provider's, so that network delays cannot break the limit.
SLACK_SHARE = 0.01  # of the window's length
MAX_SLACK = 0.15  # seconds
# And longer still if calls arrived before it had opened.
MAX_GUARD_SHARE, MAX_GUARD = 0.05, 0.25  # of the window's length, seconds
EPSILON = 1e-9  # rounding error of summed amounts
NEVER = float("inf")
# Lengths of windows in seconds, each with how unusual it is.
WINDOW_LENGTHS = {
    1.0: 0.0, 2.0: 0.6, 3.0: 1.2, 5.0: 0.4, 6.0: 1.2, 10.0: 0.2, 12.0: 1.2, 15.0: 0.6, 20.0: 0.6, 30.0: 0.3,
    45.0: 1.2, 60.0: 0.0, 90.0: 1.2, 120.0: 0.6, 300.0: 0.4, 600.0: 0.4, 900.0: 0.8, 1800.0: 0.8, 3600.0: 0.2,
}  # fmt: skip
USUAL_LENGTHS = tuple(seconds for seconds, cost in WINDOW_LENGTHS.items() if cost < 1.0)


def slack_of(seconds: float) -> float:
    """By how many seconds a window of this length is extended."""
    return min(SLACK_SHARE * seconds, MAX_SLACK)


@dataclass(slots=True)
class UsageEntry:
    """One amount in a window; corrected when the call's real usage is known."""

    at: float
    amount: float
    counts: bool = True


@dataclass(slots=True, eq=False)
class Reservation:
    """What one call has been charged in each window of its limiter."""

    at: float
    cost: CallCost = field(default_factory=CallCost)
    entries: dict[Dimension, UsageEntry] = field(default_factory=dict)
    refused: bool = False
    is_trial: bool = False
    early: float = 0.0
    """By how many seconds a trial was sent before the learned limits allowed it; 0 for any other call."""
    ended_at: float = NEVER


class UsageWindow:
    """Usage of one limit, such as 60 requests per minute, on one bucket.

    It counts in the way the provider does: sliding window, fixed window (one of them starting at `start`) or
    token bucket. As long as that is not known (None) it slides, which is the strictest: it never admits more than
    `rate.amount` in any period of `rate.seconds`. A call larger than the whole limit is admitted alone.
    With `midnight` (the start of any quota day), usage counts only within the day it belongs to.

        window = UsageWindow(Rate(60, 60.0))
        if window.next_allowed_at(1.0, now) <= now:
            entry = window.record(1.0, now)
    """

    __slots__ = (
        *("_entries", "_level", "_level_at", "_midnight", "_sum"),
        *("counting", "guard", "rate", "slack", "start"),
    )

    def __init__(
        self,
        rate: Rate,
        counting: Counting | None = None,
        start: float = 0.0,
        midnight: float | None = None,
    ) -> None:
        self._midnight = midnight
        self.counting, self.start = counting, start
        self.guard = 0.0
        self.set_rate(rate)
        self._entries: deque[UsageEntry] = deque()
        self._sum = 0.0
        self._level = 0.0
        self._level_at = 0.0

    def set_rate(self, rate: Rate) -> None:
        """Change the limit; what was used before still counts."""
        self.rate = rate
        self.set_guard(self.guard)

    @property
    def max_guard(self) -> float:
        return min(MAX_GUARD_SHARE * self.rate.seconds, MAX_GUARD)

    def set_guard(self, seconds: float) -> None:
        """Open this many seconds later: calls have arrived before the window opened."""
        self.guard = min(seconds, self.max_guard)
        self.slack = slack_of(self.rate.seconds) + self.guard

    def next_allowed_at(self, amount: float, now: float) -> float:
        """Return the first moment at which this amount fits; `now` or earlier means at once."""
        if self.counting is Counting.FIXED:
            return self.fixed_window_at(amount, now, self.start)
        if self.counting is Counting.TOKEN_BUCKET:
            return self.token_bucket_at(amount, now)
        return self.sliding_window_at(amount, now)

    def sliding_window_at(self, amount: float, now: float) -> float:
        """`next_allowed_at` if any period of the window's length counts."""
        self._expire(now)
        excess = self._sum + amount - self.rate.amount
        if excess <= EPSILON or not self._entries:
            return now
        for entry in self._entries:
            excess -= entry.amount
            if excess <= EPSILON:
                return self._expires_at(entry)
        # The amount is larger than the whole limit: admit it alone.
        return self._expires_at(self._entries[-1])

    def fixed_window_at(self, amount: float, now: float, window_start: float) -> float:
        """`next_allowed_at` if windows follow one another, one of them starting at `window_start`.

        A call sent shortly before a window starts may arrive within it, so it counts in both.
        """
        self._expire(now)
        seconds = self.rate.seconds
        start = window_start + (now - self.slack - window_start) // seconds * seconds
        used = sum(entry.amount for entry in self._entries if entry.at >= start - self.slack)
        if not used or used + amount <= self.rate.amount + EPSILON:
            return now
        return start + seconds + self.slack

    def token_bucket_at(self, amount: float, now: float) -> float:
        """`next_allowed_at` if a token bucket refills at a constant rate."""
        excess = self._level + min(amount, self.rate.amount) - self.rate.amount
        if excess <= EPSILON:
            return now
        return max(now, self._level_at + excess / self._refill_rate + self.guard)

    def record(self, amount: float, now: float) -> UsageEntry:
        """Count an amount as used; the entry can be corrected later."""
        entry = UsageEntry(now, amount)
        self._entries.append(entry)
        self._sum += amount
        self._level, self._level_at = self.level_at(now) + amount, max(now, self._level_at)
        return entry

    def replay_all(
        self, dimension: Dimension, history: Iterable[Reservation], *, counts_refused: bool
    ) -> None:
        """Count all calls that were sent before this window was created."""
        for call in history:
            if counts_refused or not call.refused:
                call.entries[dimension] = self.replay(call.cost.amount(dimension), call.at)

    def replay(self, amount: float, at: float) -> UsageEntry:
        """Count a call that was sent before the limit was known. It was admitted, so it did not overflow the token bucket.

        An overflow by one call is allowed for, because the provider's clock differs from ours.
        """
        entry = self.record(amount, at)
        self._level = min(self._level, self.rate.amount + amount)
        return entry

    def correct(self, entry: UsageEntry, amount: float) -> None:
        """Replace an estimate by the real amount."""
        if entry.counts:
            self._sum += amount - entry.amount
            self._level = max(0.0, self._level + amount - entry.amount)
        entry.amount = amount

    def used(self, now: float) -> float:
        self._expire(now)
        return self._sum

    def _expires_at(self, entry: UsageEntry) -> float:
        end = entry.at + self.rate.seconds + self.slack
        return end if self._midnight is None else min(end, self._day_start(entry.at) + DAY)

    def _day_start(self, at: float) -> float:
        midnight = self._midnight or 0.0
        return midnight + (at - midnight) // DAY * DAY

    @property
    def _refill_rate(self) -> float:
        return self.rate.per_second * (1 - SLACK_SHARE)

    def level_at(self, now: float) -> float:
        """How much of a token bucket is used and not yet refilled, if it has room for everything that was admitted."""
        return max(0.0, self._level - max(0.0, now - self._level_at) * self._refill_rate)

    def _expire(self, now: float) -> None:
        entries, horizon = self._entries, now - self.rate.seconds - self.slack
        if self._midnight is not None:
            horizon = max(horizon, self._day_start(now) - EPSILON)
        while entries and entries[0].at <= horizon:
            expired = entries.popleft()
            expired.counts = False
            self._sum -= expired.amount
        if not entries:
            self._sum = 0.0
