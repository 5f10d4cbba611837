"""How an item ended."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    APPROVED = "approved"
    NEEDS_REVISION = "needs revision"


class Ending(StrEnum):
    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    PARKED = "parked"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that one call, one item or one run has used."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
        )

    def __sub__(self, other: "Usage") -> "Usage":
        return Usage(
            self.calls - other.calls,
            self.input_tokens - other.input_tokens,
            self.output_tokens - other.output_tokens,
        )

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one attempt at an item, as its worker tells it."""

    ending: Ending
    verdict: Verdict | None = None
    rounds: int = 0
    error: str | None = None
    details: tuple[str, ...] = ()
    retryable: bool = False
    result: str | None = None


def failed(error: str, details: tuple[str, ...] = ()) -> Outcome:
    """A failure that trying again would repeat."""
    return Outcome(Ending.FAILED, error=error, details=details)


def failed_transient(error: str, details: tuple[str, ...] = ()) -> Outcome:
    """A failure that may pass when the item is tried again."""
    return Outcome(Ending.FAILED, error=error, details=details, retryable=True)
