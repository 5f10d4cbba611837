"""Decides whether a bucket may take one more call."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

DAY = 86400.0
# quotas begin anew at midnight Pacific; summer time is of no use to a test server
PACIFIC = 8 * 3600.0


class Window(StrEnum):
    SLIDING = "sliding"
    FIXED = "fixed"
    BUCKET = "bucket"


class Quota(StrEnum):
    MINUTE = "minute"
    DAY = "day"
    CONCURRENCY = "concurrency"


@dataclass(frozen=True, slots=True)
class Limits:
    """`rate` calls per `seconds`; `burst` is what a token bucket may hold, the rate if not given."""

    rate: int | None = None
    seconds: float = 60.0
    window: Window = Window.SLIDING
    burst: int | None = None
    concurrency: int | None = None
    per_day: int | None = None


@dataclass(frozen=True, slots=True)
class Over:
    quota: Quota
    limit: int
    wait: float


class Meter:
    """Counts the admitted calls of one bucket; a refused call counts for nothing."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._admitted: deque[float] = deque()
        self._tokens = float(limits.burst or limits.rate or 0)
        self._filled = 0.0
        self._day = 0
        self._today = 0
        self._inside = 0

    def ask(self, now: float) -> Over | None:
        """Counts the call unless it is over a limit."""
        over = self._over_concurrency() or self._over_day(now) or self._over_rate(now)
        if over is None:
            self._admit(now)
        return over

    @contextmanager
    def inside(self) -> Iterator[None]:
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    def _admit(self, now: float) -> None:
        self._today += 1
        self._tokens -= 1
        if self._limits.rate is not None:
            self._admitted.append(now)

    def _over_concurrency(self) -> Over | None:
        limit = self._limits.concurrency
        if limit is None or self._inside < limit:
            return None
        return Over(Quota.CONCURRENCY, limit, 0.0)

    def _over_day(self, now: float) -> Over | None:
        day = int((now - PACIFIC) // DAY)
        if day != self._day:
            self._day, self._today = day, 0
        limit = self._limits.per_day
        if limit is None or self._today < limit:
            return None
        return Over(Quota.DAY, limit, (day + 1) * DAY + PACIFIC - now)

    def _over_rate(self, now: float) -> Over | None:
        if self._limits.rate is None:
            return None
        wait = self._wait(now, self._limits.rate)
        return Over(Quota.MINUTE, self._limits.rate, wait) if wait > 0 else None

    def _wait(self, now: float, rate: int) -> float:
        match self._limits.window:
            case Window.SLIDING:
                return self._wait_since(now - self._limits.seconds, now, rate)
            case Window.FIXED:
                return self._wait_since(now - now % self._limits.seconds, now, rate)
            case Window.BUCKET:
                return self._wait_for_token(now, rate)
            case _:
                assert_never(self._limits.window)

    def _wait_since(self, start: float, now: float, rate: int) -> float:
        while self._admitted and (
            self._admitted[0] < start or self._admitted[0] <= now - self._limits.seconds
        ):
            self._admitted.popleft()
        if len(self._admitted) < rate:
            return 0.0
        first = start if self._limits.window is Window.FIXED else self._admitted[-rate]
        return first + self._limits.seconds - now

    def _wait_for_token(self, now: float, rate: int) -> float:
        self._admitted.clear()
        pace = rate / self._limits.seconds
        room = float(self._limits.burst or rate)
        self._tokens = min(room, self._tokens + (now - self._filled) * pace)
        self._filled = now
        # a hair of tolerance: a caller that waited exactly as told is not sent away by rounding
        return 0.0 if self._tokens >= 1 - 1e-9 else (1 - self._tokens) / pace
