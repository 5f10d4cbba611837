"""Counts what was spent in a span of time, in the three ways that providers do."""

from collections import deque
from enum import StrEnum
from itertools import accumulate
from typing import Protocol, assert_never

# a caller that waited exactly as told is not sent away by rounding: clocks of this century tell 0.24 µs apart
EPSILON = 1e-6


class WindowKind(StrEnum):
    SLIDING = "sliding"
    FIXED = "fixed"
    BUCKET = "bucket"


class Window(Protocol):
    """Spending more than the limit is possible, and makes the next wait longer."""

    limit: int

    def wait(self, now: float, amount: int) -> float:
        """Until the amount fits in; 0 if it does now."""

    def spend(self, now: float, amount: int) -> None: ...

    def remaining(self, now: float) -> int: ...

    def resets_at(self, now: float) -> float:
        """When it is whole again if nobody spends."""


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
    """Every spending counts for the same length of time."""

    def __init__(self, limit: int, seconds: float) -> None:
        self.limit = limit
        self._seconds = seconds
        self._spendings: deque[tuple[float, int]] = deque()
        self._spent = 0

    def wait(self, now: float, amount: int) -> float:
        self._forget(now)
        if amount > self.limit:
            return self._seconds
        excess = self._spent + amount - self.limit
        return self._end_of(excess) - now if excess > 0 else 0.0

    def spend(self, now: float, amount: int) -> None:
        self._forget(now)
        self._spendings.append((now + self._seconds, amount))
        self._spent += amount

    def remaining(self, now: float) -> int:
        self._forget(now)
        return self.limit - self._spent

    def resets_at(self, now: float) -> float:
        self._forget(now)
        return self._spendings[-1][0] if self._spendings else now

    def _end_of(self, excess: int) -> float:
        """When that much, of what is spent, no longer counts."""
        freed = accumulate(spent for _, spent in self._spendings)
        return next(end for (end, _), total in zip(self._spendings, freed, strict=True) if total >= excess)

    def _forget(self, now: float) -> None:
        while self._spendings and self._spendings[0][0] <= now + EPSILON:
            self._spent -= self._spendings.popleft()[1]


class FixedWindow:
    """Begins anew with every full span of the clock, `offset` seconds late."""

    def __init__(self, limit: int, seconds: float, offset: float = 0.0) -> None:
        self.limit = limit
        self._seconds = seconds
        self._offset = offset
        self._span = 0
        self._spent = 0

    def wait(self, now: float, amount: int) -> float:
        return 0.0 if amount <= self.remaining(now) else self._end() - now

    def spend(self, now: float, amount: int) -> None:
        self._turn(now)
        self._spent += amount

    def remaining(self, now: float) -> int:
        self._turn(now)
        return self.limit - self._spent

    def resets_at(self, now: float) -> float:
        self._turn(now)
        return self._end()

    def _end(self) -> float:
        return (self._span + 1) * self._seconds + self._offset

    def _turn(self, now: float) -> None:
        span = int((now + EPSILON - self._offset) // self._seconds)
        if span != self._span:
            self._span, self._spent = span, 0


class OfflineTokenBucket:
    """Fills evenly, up to `room`."""

    def __init__(self, limit: int, seconds: float, room: int) -> None:
        self.limit = limit
        self._room = room
        self._pace = limit / seconds
        self._level = float(room)
        self._filled = 0.0

    def wait(self, now: float, amount: int) -> float:
        self._fill(now)
        missing = amount - self._level
        if amount > self._room:
            return max(missing, 1.0) / self._pace
        return 0.0 if missing <= EPSILON * max(self._pace, 1.0) else missing / self._pace

    def spend(self, now: float, amount: int) -> None:
        self._fill(now)
        self._level -= amount

    def remaining(self, now: float) -> int:
        self._fill(now)
        return int(self._level // 1)

    def resets_at(self, now: float) -> float:
        self._fill(now)
        return now + (self._room - self._level) / self._pace

    def _fill(self, now: float) -> None:
        self._level = min(float(self._room), self._level + (now - self._filled) * self._pace)
        self._filled = now
