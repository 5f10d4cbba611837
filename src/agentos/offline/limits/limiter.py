"""Decides whether a bucket may take one more call."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from agentos.core.constants import DAY
from agentos.offline.limits.windows import FixedWindow, Window, WindowKind, make_window
from agentos.offline.vendors.neutral import Gauge, Quota, Violation

# quotas begin anew at midnight Pacific; summer time is of no use to a test server
PACIFIC = 8 * 3600.0


@dataclass(frozen=True, slots=True)
class OfflineLimits:
    """`rate` calls and so many tokens per `seconds`; `burst` is how many calls a token bucket may hold,
    the rate if not given. With `refused_count` a refused call counts as a call all the same."""

    rate: int | None = None
    seconds: float = 60.0
    window: WindowKind = WindowKind.SLIDING
    burst: int | None = None
    concurrency: int | None = None
    per_day: int | None = None
    tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    refused_count: bool = False


@dataclass(frozen=True, slots=True)
class Spending:
    """What is known of a call when it arrives; `output_tokens` are those that it reserves."""

    input_tokens: int = 0
    output_tokens: int = 0


class BucketLimiter:
    """Counts the calls of one bucket with their tokens."""

    def __init__(self, limits: OfflineLimits) -> None:
        self._limits = limits
        self._windows = _tallies(limits)
        self._inside = 0

    def ask(self, now: float, spending: Spending | None = None) -> tuple[Violation, ...]:
        """Counts the call unless it is over a limit; gives every limit that it is over."""
        amounts = _amounts(spending or Spending())
        over = (*self._over_concurrency(), *self._over(now, amounts))
        if not over:
            for quota, stats in self._windows.items():
                stats.spend(now, amounts[quota])
        elif self._limits.refused_count:
            self._count_refused(now)
        return over

    def written(self, now: float, tokens: int) -> None:
        """Counts what a call wrote beyond the tokens that it had reserved."""
        for quota in (Quota.TOKENS, Quota.OUTPUT_TOKENS):
            if tokens > 0 and quota in self._windows:
                self._windows[quota].spend(now, tokens)

    def gauges(self, now: float) -> tuple[Gauge, ...]:
        return tuple(
            Gauge(quota, stats.limit, max(stats.remaining(now), 0), stats.resets_at(now))
            for quota, stats in self._windows.items()
        )

    @contextmanager
    def inside(self) -> Iterator[None]:
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    def _over_concurrency(self) -> tuple[Violation, ...]:
        limit = self._limits.concurrency
        if limit is None or self._inside < limit:
            return ()
        return (Violation(Quota.CONCURRENCY, limit),)

    def _over(self, now: float, amounts: dict[Quota, int]) -> Iterator[Violation]:
        for quota, stats in self._windows.items():
            # tokens that are counted as they are written need room for one at least
            wait = stats.wait(now, max(amounts[quota], 1))
            if wait > 0:
                yield Violation(quota, stats.limit, wait)

    def _count_refused(self, now: float) -> None:
        for quota in (Quota.REQUESTS, Quota.DAY):
            stats = self._windows.get(quota)
            # no deeper in debt than one limit: a caller that falls silent is let in again in time
            if stats and stats.remaining(now) > -stats.limit:
                stats.spend(now, 1)


def _tallies(limits: OfflineLimits) -> dict[Quota, Window]:
    given = {
        Quota.REQUESTS: limits.rate,
        Quota.TOKENS: limits.tokens,
        Quota.INPUT_TOKENS: limits.input_tokens,
        Quota.OUTPUT_TOKENS: limits.output_tokens,
    }
    found: dict[Quota, Window] = {
        quota: make_window(
            limits.window, limit, limits.seconds, limits.burst if quota is Quota.REQUESTS else None
        )
        for quota, limit in given.items()
        if limit is not None
    }
    if limits.per_day is not None:
        found[Quota.DAY] = FixedWindow(limits.per_day, DAY, PACIFIC)
    return found


def _amounts(spending: Spending) -> dict[Quota, int]:
    return {
        Quota.REQUESTS: 1,
        Quota.DAY: 1,
        Quota.TOKENS: spending.input_tokens + spending.output_tokens,
        Quota.INPUT_TOKENS: spending.input_tokens,
        Quota.OUTPUT_TOKENS: spending.output_tokens,
    }
