"""Provider limits: what is counted, at which rate, what a call costs, and when a quota day starts."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum

from agentos.core.constants import DAY

# Added to the provider's midnight, so that a clock difference cannot make our day start first.
MIDNIGHT_MARGIN = 1.0  # seconds


MIN_LENGTH = 0.02  # seconds, of a learned window
CLEARLY = 1.75  # factor by which a limit is clearly higher than another one: most rise by two


class Dimension(StrEnum):
    """A quantity that a provider limits."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    INPUT = "input tokens"
    OUTPUT = "output tokens"
    DAY = "requests a day"


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `amount` in any period of `seconds`.

    Token buckets, fixed windows and sliding windows all admit traffic that stays within it.
    """

    amount: float
    seconds: float

    @property
    def per_second(self) -> float:
        return self.amount / self.seconds


class Counting(StrEnum):
    """How a provider measures usage against a limit."""

    SLIDING = "sliding"
    FIXED = "fixed"
    TOKEN_BUCKET = "token_bucket"  # noqa: S105 - an algorithm, not a secret


Lengths = tuple[tuple[Dimension, Counting | None, float], ...]


@dataclass(frozen=True, slots=True)
class LearnedLimit:
    """One limit found from refusals: `amount` per `seconds`, counted in one way.

    `start` is when one of its fixed windows starts. For a token bucket, `amount` is the capacity and `seconds` the time
    in which an empty one refills.
    """

    dimension: Dimension
    counting: Counting
    amount: float
    seconds: float
    start: float = 0.0

    @property
    def rate(self) -> Rate:
        return Rate(self.amount, self.seconds)

    @property
    def length(self) -> float:
        """Seconds until a call makes room for another: the window's length, or the time in which a bucket refills by one."""
        return self.seconds / self.amount if self.counting is Counting.TOKEN_BUCKET else self.seconds

    def shortened(self, seconds: float) -> "LearnedLimit":
        """Return the limit under which a call can be sent this many seconds earlier."""
        length = max(MIN_LENGTH, self.length - seconds)
        return replace(
            self, seconds=self.amount * length if self.counting is Counting.TOKEN_BUCKET else length
        )


@dataclass(frozen=True, slots=True)
class LearnedLimits:
    """Everything learned about one bucket: limits that apply together, and how many calls it admits at a time.

    `refusals` is the number of refusals that they explain, `since` the time when they were found.
    """

    limits: tuple[LearnedLimit, ...] = ()
    concurrency: int | None = None
    refusals: int = 0
    since: float = 0.0
    changed: bool = False
    """Whether they explain only the latest refusals: the limits were different before."""

    @property
    def lengths(self) -> Lengths:
        """What most keys of a provider have in common: how each limit counts and its length, or the number of slots."""
        if self.concurrency is not None:
            return ((Dimension.REQUESTS, None, float(self.concurrency)),)
        return tuple((limit.dimension, limit.counting, round(limit.length, 3)) for limit in self.limits)

    def shifted(self, seconds: float) -> "LearnedLimits":
        """The same limits with times by another clock."""
        limits = tuple(replace(limit, start=limit.start + seconds) for limit in self.limits)
        return replace(self, limits=limits, since=self.since + seconds)

    def exceeds(self, other: "LearnedLimits") -> bool:
        """Whether all these limits are clearly higher than the other ones, which are of the same lengths."""
        if not self.limits or self.lengths != other.lengths:
            return False
        pairs = zip(self.limits, other.limits, strict=True)
        return all(limit.amount > CLEARLY * before.amount for limit, before in pairs)

    def same_as(self, other: "LearnedLimits | None") -> bool:
        return other is not None and (self.limits, self.concurrency) == (other.limits, other.concurrency)


@dataclass(frozen=True, slots=True)
class LimitSeen:
    """A limit that the provider stated in a response header or in a refusal."""

    dimension: Dimension
    amount: float
    seconds: float = 60.0

    @property
    def rate(self) -> Rate:
        return Rate(self.amount, self.seconds)


@dataclass(frozen=True, slots=True)
class CallCost:
    """What one call uses up: an estimate before it is sent, the reported usage afterwards."""

    input_tokens: int = 0
    output_tokens: int = 0

    def amount(self, dimension: Dimension) -> float:
        match dimension:
            case Dimension.REQUESTS | Dimension.DAY:
                return 1.0
            case Dimension.INPUT:
                return float(self.input_tokens)
            case Dimension.OUTPUT:
                return float(self.output_tokens)
            case Dimension.TOKENS:
                return float(self.input_tokens + self.output_tokens)

    def within(self, other: "CallCost") -> bool:
        """Return whether this costs no more than `other` in any dimension."""
        return self.input_tokens <= other.input_tokens and self.output_tokens <= other.output_tokens


def quota_day_start(provider: str, wall_time: float) -> float | None:
    """Return the wall time at which the provider's current quota day started; None if it has no fixed day."""
    if provider != "gemini":
        return None
    return wall_time + seconds_to_midnight_pacific(wall_time) - DAY + MIDNIGHT_MARGIN


def seconds_to_midnight_pacific(wall_time: float) -> float:
    """Return the seconds until Google resets its daily quotas."""
    now = datetime.fromtimestamp(wall_time, UTC)
    try:
        from zoneinfo import ZoneInfo

        pacific = ZoneInfo("America/Los_Angeles")
    except KeyError:
        # Without time zone data, assume standard time: an hour late in summer, but never early.
        return DAY - (wall_time - 8 * 3600) % DAY
    tomorrow = now.astimezone(pacific).date() + timedelta(days=1)
    return datetime.combine(tomorrow, time(), pacific).timestamp() - wall_time
