"""The shapes of limits that the pool has to cope with: a table of them, and a generator of random ones."""

import random
from dataclasses import dataclass, replace
from enum import StrEnum

from bench.keypool.limiters import Change, Kind, Limit

WINDOWS_SHORT, WINDOWS_LONG = 4, 25


class Hint(StrEnum):
    """What a refusal says about the wait: the exact time, the time in whole seconds, nothing."""

    EXACT = "exact"
    SECONDS = "seconds"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Shape:
    """What the provider limits, how it refuses, and the load.

    `quotas` are the limits of each quota, `keys` the quota of each key: two keys may share one without it being told.
    `windows` is the number of calls that all keys together are admitted in one period; `latency` a range in seconds,
    drawn from evenly or, with `heavy_tail`, mostly near its lower end. `rate_when_told` is what a user who is told nothing
    may type for keys without limits, in calls per minute.
    """

    name: str
    quotas: tuple[tuple[Limit, ...], ...]
    keys: tuple[int, ...] = (0, 1, 2, 3)
    concurrency: int | None = None
    changes: tuple[Change, ...] = ()
    hint: Hint = Hint.EXACT
    concurrency_hint: float | None = 1.0
    per_window: int = 40
    callers: int = 16
    latency: tuple[float, float] = (0.3, 1.0)
    heavy_tail: bool = False
    tokens: tuple[int, int] = (100, 100)
    short: int = WINDOWS_SHORT
    long: int = WINDOWS_LONG
    slots: int = 16
    rate_when_told: float = 0.0

    def calls(self, *, long: bool) -> int:
        return self.per_window * (self.long if long else self.short)


def _all(*limits: Limit, keys: int = 4) -> tuple[tuple[Limit, ...], ...]:
    return (limits,) * keys


TEN = Limit(Kind.SLIDING, 10, 10.0)
SLIDING = Shape("sliding", _all(TEN))
UNEQUAL = tuple((replace(TEN, amount=amount),) for amount in (5, 8, 12, 15))
PHASES = (1.3, 3.9, 6.2, 8.8)
CONCURRENCY = Shape("concurrency", _all(), concurrency=2, per_window=60, callers=20, latency=(0.5, 0.5))
TABLE = (
    SLIDING,
    Shape("sliding-minute", _all(replace(TEN, amount=15, seconds=60.0)), per_window=60),
    Shape("sliding-unequal", UNEQUAL),
    replace(SLIDING, name="doubled", changes=(Change(20.0, 2.0),)),
    replace(SLIDING, name="halved", changes=(Change(20.0, 0.5),)),
    replace(SLIDING, name="window-moves", changes=(Change(40.0, 1.0, 20.0),)),
    replace(SLIDING, name="whole-seconds", hint=Hint.SECONDS),
    replace(SLIDING, name="no-hint", hint=Hint.NONE),
    replace(SLIDING, name="shared", quotas=_all(TEN, keys=3), keys=(0, 0, 1, 2), per_window=30),
    replace(SLIDING, name="slow-calls", callers=64, latency=(5.0, 20.0), heavy_tail=True),
    CONCURRENCY,
    replace(CONCURRENCY, name="concurrency-no-hint", concurrency_hint=None),
    Shape(
        "requests-and-tokens",
        _all(replace(TEN, amount=15), Limit(Kind.SLIDING, 6000, 10.0, tokens=True)),
        per_window=48,
        tokens=(200, 800),
    ),
    Shape("fixed-phases", tuple((Limit(Kind.FIXED, 10, 10.0, phase),) for phase in PHASES)),
    Shape("fixed-aligned", _all(Limit(Kind.FIXED, 10, 10.0))),
    Shape("no-limit", _all(), per_window=500, callers=200, latency=(1.0, 1.0), slots=64),
    Shape("gcra", _all(Limit(Kind.BUCKET, 60, 60.0, burst=1)), per_window=40),
    Shape("bucket", _all(Limit(Kind.BUCKET, 5, 1.0)), per_window=100),
    Shape("bucket-minute", _all(Limit(Kind.BUCKET, 60, 60.0, burst=10)), per_window=60),
)
NAMES = tuple(shape.name for shape in TABLE)
# Loads that were once far slower through the gateway than by themselves; only over real HTTP.
GATEWAY_LOADS = (
    replace(SLIDING, name="no-hint-three-windows", hint=Hint.NONE, short=3),
    Shape(
        "fifty-callers", _all(), per_window=750, callers=50, latency=(0.1, 0.1), slots=64, rate_when_told=1e6
    ),
)


def shape_named(name: str) -> Shape:
    return next(shape for shape in (*TABLE, *GATEWAY_LOADS) if shape.name == name)


AMOUNTS = (3, 5, 8, 10, 15, 20, 30)
PERIODS = (1.0, 5.0, 10.0, 20.0, 30.0, 60.0)


def random_shape(seed: int) -> Shape:
    """Draw a shape; the same seed draws the same one."""
    dice = random.Random(seed)
    count = dice.choice((1, 2, 3, 4, 6))
    seconds = dice.choice(PERIODS)
    latency = dice.choice(((0.05, 0.05), (0.2, 1.0), (1.0, 4.0)))
    kind = dice.choice((*Kind, "concurrency", "none", "both"))
    amounts = (
        [dice.choice(AMOUNTS)] * count
        if dice.random() < 0.7
        else [dice.choice(AMOUNTS) for _ in range(count)]
    )
    concurrency, per_window = None, sum(amounts)
    callers = dice.choice((10, 30, 64))
    if kind == "both":
        amounts = [max(10, amount) for amount in amounts]
        per_window = sum(amounts)
    if kind == "none":
        quotas: tuple[tuple[Limit, ...], ...] = ((),) * count
        latency = (0.2, 1.0) if latency[0] < 0.2 else latency
        per_window = round(callers / sum(latency))
    elif kind == "concurrency":
        quotas, concurrency = ((),) * count, dice.choice((1, 2, 4))
        per_window = 20 * count * concurrency
    elif kind == "both":
        quotas = tuple(
            (Limit(Kind.SLIDING, amount, seconds), Limit(Kind.SLIDING, 400.0 * amount, seconds, tokens=True))
            for amount in amounts
        )
    else:
        assert isinstance(kind, Kind)
        burst = dice.choice((None, 1.0, 5.0)) if kind is Kind.BUCKET else None
        quotas = tuple(
            (Limit(kind, amount, seconds, dice.uniform(0.0, seconds), burst),) for amount in amounts
        )
    keys = tuple(range(count))
    if count > 2 and kind in (Kind.SLIDING, Kind.FIXED) and dice.random() < 0.25:
        keys, quotas = (0, *range(count - 1)), quotas[:-1]
        per_window = sum(amounts[:-1])
    changes: tuple[Change, ...] = ()
    if kind in tuple(Kind) and dice.random() < 0.25:
        changes = (Change(3 * seconds, dice.choice((0.5, 2.0))),)
    return Shape(
        f"random-{seed}",
        quotas,
        keys,
        concurrency,
        changes,
        dice.choice(tuple(Hint)),
        dice.choice((1.0, None)),
        per_window,
        callers,
        latency,
        heavy_tail=dice.random() < 0.3,
        tokens=(200, 700) if kind == "both" else (100, 100),
        slots=64,
    )
