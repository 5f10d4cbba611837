"""What runs on one host tell each other about keys, so that none is used beyond its limits in sum."""

from dataclasses import dataclass, field

from agentos.core.loads import LimitSeen, Load, Rate
from agentos.core.manners import Counting


@dataclass(frozen=True, slots=True)
class CallSent:
    """A call began: it holds a slot of its key and counts for its bucket."""

    run: str
    lease: str
    key: str
    bucket: str
    model: str
    at: float
    load: Load


@dataclass(frozen=True, slots=True)
class CallOver:
    """A call ended: its slot is free, and what it used is known."""

    run: str
    lease: str
    used: Load = field(default_factory=Load)


@dataclass(frozen=True, slots=True)
class BucketRefused:
    """A bucket rests: `until` by the host's clock, `spent_until` for a day's quota; told at `at`."""

    run: str
    bucket: str
    model: str
    until: float
    spent_until: float
    reason: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class BucketBack:
    """A call went through in spite of a rest: it is over."""

    run: str
    bucket: str
    model: str


@dataclass(frozen=True, slots=True)
class BucketLearnt:
    """What was told or found out about a bucket's limits, and how its provider counts.

    `window`: in what time a found rate may be used up; `weight`: if tokens were found to be counted, the largest
    call and in what time as many are admitted; `boundary`: when one of the fixed windows begins.
    """

    run: str
    bucket: str
    model: str
    limits: tuple[LimitSeen, ...] = ()
    per_second: float | None = None
    window: float | None = None
    weight: Rate | None = None
    counting: Counting | None = None
    boundary: float = 0.0


@dataclass(frozen=True, slots=True)
class RunGone:
    """A run has ended, or died: it holds nothing any more."""

    run: str


Note = CallSent | CallOver | BucketRefused | BucketBack | BucketLearnt | RunGone
