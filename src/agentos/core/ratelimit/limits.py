"""What providers count, and how much of it a call is."""

from dataclasses import dataclass
from enum import StrEnum

DAY = 86400.0


class Dimension(StrEnum):
    """What providers count."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    INPUT = "input tokens"
    OUTPUT = "output tokens"
    DAY = "requests a day"


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `amount` in any `seconds`: what a token bucket, a fixed and a sliding window all admit."""

    amount: float
    seconds: float

    @property
    def per_second(self) -> float:
        return self.amount / self.seconds


@dataclass(frozen=True, slots=True)
class LimitSeen:
    """A limit that the provider has named, in a header or a refusal."""

    dimension: Dimension
    amount: float
    seconds: float = 60.0

    @property
    def rate(self) -> Rate:
        return Rate(self.amount, self.seconds)


@dataclass(frozen=True, slots=True)
class CallCost:
    """What one call will count for, as far as can be told before it."""

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
        """Whether it counts for no more, in any dimension."""
        return self.input_tokens <= other.input_tokens and self.output_tokens <= other.output_tokens
