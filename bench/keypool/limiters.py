"""Limiters of every shape that providers use, written without the product's own code.

Each tells how long a call would have to wait at a given moment, and counts the calls that it admits. They serve the
simulated provider and the omniscient sender that efficiency is measured against.
"""

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

NEVER = float("inf")
SOON = 1e-6  # seconds


class Kind(StrEnum):
    SLIDING = "sliding"
    FIXED = "fixed"
    BUCKET = "bucket"


@dataclass(frozen=True, slots=True)
class Limit:
    """`amount` per `seconds`, of requests or of tokens; `burst` is the capacity of a bucket, by default the amount."""

    kind: Kind
    amount: float
    seconds: float
    phase: float = 0.0
    burst: float | None = None
    tokens: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """From `at` seconds after the start on, amounts are multiplied and periods are `seconds` long."""

    at: float
    factor: float = 1.0
    seconds: float | None = None


class Limiter:
    """Usage of one limit: what was admitted, and when there is room again."""

    def __init__(self, limit: Limit, changes: tuple[Change, ...], start: float) -> None:
        self._limit = limit
        times = [start, *(start + change.at for change in changes), NEVER]
        self._stages = [
            (begin, end, stage)
            for (begin, end), stage in zip(pairwise(times), _stages(limit, changes), strict=True)
        ]
        self._admitted: deque[tuple[float, float]] = deque()
        self._level = 0.0
        self._level_at = start

    def wait(self, now: float, tokens: float) -> float:
        """Seconds until the call would be admitted; 0 if now."""
        amount = tokens if self._limit.tokens else 1.0
        at = now
        while True:
            _, end, stage = self._stage(at)
            opens = self._opens(at, amount, stage)
            if opens <= end:
                return max(0.0, opens - now)
            at = end

    def hint(self, now: float, tokens: float) -> float:
        """What the provider says about the wait: it does not know of changes to come."""
        opens = self._opens(now, tokens if self._limit.tokens else 1.0, self._stage(now)[2])
        return max(0.0, opens - now)

    def admit(self, now: float, tokens: float) -> None:
        amount = tokens if self._limit.tokens else 1.0
        _, _, stage = self._stage(now)
        self._level = self._level_now(now, stage) + amount
        self._level_at = now
        self._admitted.append((now, amount))
        while self._admitted and self._admitted[0][0] < now - 4 * stage.seconds - 600:
            self._admitted.popleft()

    def _stage(self, at: float) -> tuple[float, float, Limit]:
        return self._stages[max(0, bisect_right([begin for begin, _, _ in self._stages], at) - 1)]

    def _opens(self, at: float, amount: float, stage: Limit) -> float:
        match stage.kind:
            case Kind.SLIDING:
                inside = [(when, size) for when, size in self._admitted if when > at - stage.seconds]
                excess = sum(size for _, size in inside) + amount - stage.amount
                for when, size in inside:
                    if excess <= 0:
                        return at
                    excess -= size
                    at = when + stage.seconds
                return at
            case Kind.FIXED:
                begin = stage.phase + (at - stage.phase) // stage.seconds * stage.seconds
                used = sum(size for when, size in self._admitted if begin <= when <= at)
                return at if not used or used + amount <= stage.amount else begin + stage.seconds
            case Kind.BUCKET:
                capacity = stage.burst or stage.amount
                excess = self._level_now(at, stage) + min(amount, capacity) - capacity
                return at if excess <= 1e-9 else at + excess * stage.seconds / stage.amount

    def _level_now(self, at: float, stage: Limit) -> float:
        return max(0.0, self._level - max(0.0, at - self._level_at) * stage.amount / stage.seconds)


class Provider:
    """One quota at the provider: any number of limits together, and a number of calls at a time."""

    def __init__(
        self, limits: tuple[Limit, ...], concurrency: int | None, changes: tuple[Change, ...], start: float
    ) -> None:
        self._limiters = [Limiter(limit, changes, start) for limit in limits]
        self._concurrency = concurrency
        self._ends: list[float] = []

    def wait(self, now: float, tokens: float) -> float:
        self._ends = [end for end in self._ends if end > now]
        at = now
        if self._concurrency is not None and len(self._ends) >= self._concurrency:
            at = sorted(self._ends)[-self._concurrency]
        while True:
            wait = max((limiter.wait(at, tokens) for limiter in self._limiters), default=0.0)
            if not wait:
                return at - now
            at += max(wait, SOON)

    def admit(self, now: float, tokens: float, ends: float) -> None:
        self._ends.append(ends)
        for limiter in self._limiters:
            limiter.admit(now, tokens)

    def hint(self, now: float, tokens: float) -> float:
        """The wait that the limits ask for, without that for a call to end."""
        return max((limiter.hint(now, tokens) for limiter in self._limiters), default=0.0)


def _stages(limit: Limit, changes: tuple[Change, ...]) -> list[Limit]:
    stages = [limit]
    for change in changes:
        last = stages[-1]
        seconds = change.seconds or last.seconds
        amount = max(1.0, float(round(limit.amount * change.factor)))
        burst = None if limit.burst is None else max(1.0, float(round(limit.burst * change.factor)))
        stages.append(Limit(limit.kind, amount, seconds, limit.phase, burst, limit.tokens))
    return stages
