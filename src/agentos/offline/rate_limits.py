"""Rate limits that the offline server enforces per bucket, and their notation on the command line."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from agentos.core.constants import DAY
from agentos.offline.rate_windows import FixedWindow, Window, WindowKind, make_window
from agentos.offline.vendors.neutral import Gauge, Quota, Violation

# Daily quotas reset at midnight Pacific time; daylight saving does not matter to a test server. Seconds.
PACIFIC_OFFSET = 8 * 3600.0
EXAMPLE = "key-1:rpm=10,tpm=20000,concurrency=2"


@dataclass(frozen=True, slots=True)
class OfflineLimits:
    """Limits of one bucket; None means unlimited. `rate` and the tokens count per `seconds`.

    burst: capacity of a token bucket in calls, by default the rate
    counts_refused: whether refused calls count against `rate` and `per_day` too
    """

    rate: int | None = None
    seconds: float = 60.0
    window: WindowKind = WindowKind.SLIDING
    burst: int | None = None
    concurrency: int | None = None
    per_day: int | None = None
    tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    counts_refused: bool = False


@dataclass(frozen=True, slots=True)
class Spending:
    """The tokens of a call that are known when it arrives; `output_tokens` are those it reserves."""

    input_tokens: int = 0
    output_tokens: int = 0


class BucketLimiter:
    """Admits or refuses the calls of one bucket by all of its limits."""

    def __init__(self, limits: OfflineLimits) -> None:
        self._limits = limits
        self._windows = _make_windows(limits)
        self._running = 0

    def admit(self, now: float, spending: Spending | None = None) -> tuple[Violation, ...]:
        """Counts the call and returns (), or returns every limit that it exceeds."""
        amounts = _amounts(spending or Spending())
        exceeded = (*self._exceeded_concurrency(), *self._exceeded_windows(now, amounts))
        if not exceeded:
            for quota, window in self._windows.items():
                window.spend(now, amounts[quota])
        elif self._limits.counts_refused:
            self._count_refused(now)
        return exceeded

    def add_output(self, now: float, tokens: int) -> None:
        """Counts the output tokens of a call beyond those it had reserved."""
        for quota in (Quota.TOKENS, Quota.OUTPUT_TOKENS):
            if tokens > 0 and quota in self._windows:
                self._windows[quota].spend(now, tokens)

    def gauges(self, now: float) -> tuple[Gauge, ...]:
        return tuple(
            Gauge(quota, window.limit, max(window.remaining(now), 0), window.resets_at(now))
            for quota, window in self._windows.items()
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    def _exceeded_concurrency(self) -> tuple[Violation, ...]:
        limit = self._limits.concurrency
        if limit is None or self._running < limit:
            return ()
        return (Violation(Quota.CONCURRENCY, limit),)

    def _exceeded_windows(self, now: float, amounts: dict[Quota, int]) -> Iterator[Violation]:
        for quota, window in self._windows.items():
            # Output tokens are counted when they are written, but at least one must fit now.
            wait = window.wait(now, max(amounts[quota], 1))
            if wait > 0:
                yield Violation(quota, window.limit, wait)

    def _count_refused(self, now: float) -> None:
        for quota in (Quota.REQUESTS, Quota.DAY):
            window = self._windows.get(quota)
            # Not beyond one limit of debt, so that a caller that stops calling is admitted again in time.
            if window and window.remaining(now) > -window.limit:
                window.spend(now, 1)


def _make_windows(limits: OfflineLimits) -> dict[Quota, Window]:
    per_window = {
        Quota.REQUESTS: limits.rate,
        Quota.TOKENS: limits.tokens,
        Quota.INPUT_TOKENS: limits.input_tokens,
        Quota.OUTPUT_TOKENS: limits.output_tokens,
    }
    windows: dict[Quota, Window] = {
        quota: make_window(
            limits.window, limit, limits.seconds, limits.burst if quota is Quota.REQUESTS else None
        )
        for quota, limit in per_window.items()
        if limit is not None
    }
    if limits.per_day is not None:
        windows[Quota.DAY] = FixedWindow(limits.per_day, DAY, PACIFIC_OFFSET)
    return windows


def _amounts(spending: Spending) -> dict[Quota, int]:
    return {
        Quota.REQUESTS: 1,
        Quota.DAY: 1,
        Quota.TOKENS: spending.input_tokens + spending.output_tokens,
        Quota.INPUT_TOKENS: spending.input_tokens,
        Quota.OUTPUT_TOKENS: spending.output_tokens,
    }


@dataclass(frozen=True, slots=True)
class NamedLimits:
    name: str
    limits: OfflineLimits


def parse_limits(text: str, defaults: OfflineLimits) -> NamedLimits:
    """Reads KEY:LIMIT=VALUE,... on top of the default limits; the value none removes a limit."""
    name, _, assignments = text.rpartition(":")
    if not (name and assignments):
        raise ValueError(f"invalid limit {text}: expected KEY:LIMIT=VALUE,... such as {EXAMPLE}")
    limits = defaults
    for assignment in assignments.split(","):
        limits = _assign(limits, assignment)
    return NamedLimits(name, limits)


def _assign(limits: OfflineLimits, assignment: str) -> OfflineLimits:
    name, _, value = assignment.partition("=")
    if name not in SETTERS:
        raise ValueError(f"invalid limit {assignment}: expected one of {', '.join(SETTERS)}, as in {EXAMPLE}")
    try:
        return SETTERS[name](limits, value)
    except ValueError as error:
        raise ValueError(
            f"invalid limit {assignment}: expected a positive number or none; for window, {', '.join(WindowKind)}"
        ) from error


def _positive_int(value: str) -> int | None:
    if value == "none":
        return None
    number = int(value)
    if number < 1:
        raise ValueError(value)
    return number


def _seconds(value: str) -> float:
    number = float(value)
    if not 0 < number < float("inf"):
        raise ValueError(value)
    return number


SETTERS: dict[str, Callable[[OfflineLimits, str], OfflineLimits]] = {
    "rpm": lambda limits, value: replace(limits, rate=_positive_int(value)),
    "rpd": lambda limits, value: replace(limits, per_day=_positive_int(value)),
    "tpm": lambda limits, value: replace(limits, tokens=_positive_int(value)),
    "itpm": lambda limits, value: replace(limits, input_tokens=_positive_int(value)),
    "otpm": lambda limits, value: replace(limits, output_tokens=_positive_int(value)),
    "concurrency": lambda limits, value: replace(limits, concurrency=_positive_int(value)),
    "burst": lambda limits, value: replace(limits, burst=_positive_int(value)),
    "seconds": lambda limits, value: replace(limits, seconds=_seconds(value)),
    "window": lambda limits, value: replace(limits, window=WindowKind(value)),
}
