"""How an item ended, and what it used."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The reviewer's verdict on a document."""

    APPROVED = "approved"
    NEEDS_REVISION = "needs revision"


class Ending(StrEnum):
    """PARKED items wait for a person.

    ELSEWHERE means that another run holds the item, FINISHED_ELSEWHERE that another run has finished it.
    """

    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    PARKED = "parked"
    ELSEWHERE = "elsewhere"
    FINISHED_ELSEWHERE = "finished elsewhere"


@dataclass(frozen=True, slots=True)
class Usage:
    """Calls and tokens that one call, one item or one run has used."""

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
    """The result of one attempt at an item, as its worker reports it. `result` is the path of the document."""

    ending: Ending
    verdict: Verdict | None = None
    rounds: int = 0
    error: str | None = None
    details: tuple[str, ...] = ()
    retryable: bool = False
    result: str | None = None


@dataclass(frozen=True, slots=True)
class TakenItem:
    """A queued item that another run holds or has finished: found right before its worker would start."""

    item: str
    outcome: Outcome


def failed(error: str, details: tuple[str, ...] = ()) -> Outcome:
    """A permanent failure: another attempt would fail in the same way."""
    return Outcome(Ending.FAILED, error=error, details=details)


def failed_transient(error: str, details: tuple[str, ...] = ()) -> Outcome:
    """A failure that another attempt may not have."""
    return Outcome(Ending.FAILED, error=error, details=details, retryable=True)
