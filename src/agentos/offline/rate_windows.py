"""Server-side rate-limit windows, in the three ways that providers count: sliding, fixed, token bucket."""

from collections import deque
from enum import StrEnum
from itertools import accumulate
from typing import Protocol, assert_never

# A caller that waits exactly as long as it was told must not be refused because of rounding. Seconds.
EPSILON = 1e-6


class WindowKind(StrEnum):
    SLIDING = "sliding"
    FIXED = "fixed"
    BUCKET = "bucket"


class Window(Protocol):
    """Counts amounts against a limit. Spending beyond the limit is possible and makes the next wait longer."""

    limit: int

    def wait(self, now: float, amount: int) -> float:
        """Seconds until the amount fits; 0 if it fits now."""

    def spend(self, now: float, amount: int) -> None: ...

    def remaining(self, now: float) -> int: ...

    def resets_at(self, now: float) -> float:
        """When the full limit is available again, if nothing more is spent."""


def make_window(window: WindowKind, limit: int, seconds: float, burst: int | None = None) -> Window:
    match window:
        case WindowKind.SLIDING:
            return SlidingWindow(limit, seconds)
        case WindowKind.FIXED:
            return FixedWindow(limit, seconds)
        case WindowKind.BUCKET:
            return OfflineTokenBucket(limit, seconds, burst or limit)
        case _:
            assert_never(window)


class SlidingWindow:
    """Every amount counts for the length of the window from the moment it was spent."""

    def __init__(self, limit: int, seconds: float) -> None:
        self.limit = limit
        self._seconds = seconds
        self._spendings: deque[tuple[float, int]] = deque()
        self._spent = 0

    def wait(self, now: float, amount: int) -> float:
        self._expire(now)
        if amount > self.limit:
            return self._seconds
        excess = self._spent + amount - self.limit
        return self._end_of(excess) - now if excess > 0 else 0.0

    def spend(self, now: float, amount: int) -> None:
        self._expire(now)
        self._spendings.append((now + self._seconds, amount))
        self._spent += amount

    def remaining(self, now: float) -> int:
        self._expire(now)
        return self.limit - self._spent

    def resets_at(self, now: float) -> float:
        self._expire(now)
        return self._spendings[-1][0] if self._spendings else now

    def _end_of(self, excess: int) -> float:
        """When that much of what was spent no longer counts."""
        freed = accumulate(spent for _, spent in self._spendings)
        return next(end for (end, _), total in zip(self._spendings, freed, strict=True) if total >= excess)

    def _expire(self, now: float) -> None:
        while self._spendings and self._spendings[0][0] <= now + EPSILON:
            self._spent -= self._spendings.popleft()[1]


class FixedWindow:
    """Starts over at every multiple of the window's length plus `offset`."""

    def __init__(self, limit: int, seconds: float, offset: float = 0.0) -> None:
        self.limit = limit
        self._seconds = seconds
        self._offset = offset
        self._index = 0
        self._spent = 0

    def wait(self, now: float, amount: int) -> float:
        return 0.0 if amount <= self.remaining(now) else self._end() - now

    def spend(self, now: float, amount: int) -> None:
        self._advance(now)
        self._spent += amount

    def remaining(self, now: float) -> int:
        self._advance(now)
        return self.limit - self._spent

    def resets_at(self, now: float) -> float:
        self._advance(now)
        return self._end()

    def _end(self) -> float:
        return (self._index + 1) * self._seconds + self._offset

    def _advance(self, now: float) -> None:
        index = int((now + EPSILON - self._offset) // self._seconds)
        if index != self._index:
            self._index, self._spent = index, 0


class OfflineTokenBucket:
    """Refills at a constant rate, up to `capacity`."""

    def __init__(self, limit: int, seconds: float, capacity: int) -> None:
        self.limit = limit
        self._capacity = capacity
        self._rate = limit / seconds
        self._level = float(capacity)
        self._filled_at = 0.0

    def wait(self, now: float, amount: int) -> float:
        self._refill(now)
        missing = amount - self._level
        if amount > self._capacity:
            return max(missing, 1.0) / self._rate
        return 0.0 if missing <= EPSILON * max(self._rate, 1.0) else missing / self._rate

    def spend(self, now: float, amount: int) -> None:
        self._refill(now)
        self._level -= amount

    def remaining(self, now: float) -> int:
        self._refill(now)
        return int(self._level // 1)

    def resets_at(self, now: float) -> float:
        self._refill(now)
        return now + (self._capacity - self._level) / self._rate

    def _refill(self, now: float) -> None:
        self._level = min(float(self._capacity), self._level + (now - self._filled_at) * self._rate)
        self._filled_at = now
