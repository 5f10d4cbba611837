"""How an item ended, and what it used."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The reviewer's verdict on a document."""

    APPROVED = "approved"
    NEEDS_REVISION = "needs revision"


class Ending(StrEnum):
    """How an item ended in this run. A PARKED item waits for a person."""

    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    PARKED = "parked"
    HELD_BY_OTHER_RUN = "held by another run"
    FINISHED_BY_OTHER_RUN = "finished by another run"
    FAILED_IN_OTHER_RUN = "failed in another run"


class FinishReason(StrEnum):
    """Why a model stopped writing. Anything but STOP means that the text may be incomplete."""

    STOP = "stop"
    LENGTH = "length"
    """The output limit or the context window was reached."""
    FILTERED = "filtered"
    """Safety, recitation, a content filter, or the model's refusal."""
    PAUSED = "paused"
    """The server paused a long turn and expects the caller to continue it."""
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Usage:
    """Calls and tokens that one call, one item or one run has used.

    Input tokens include those read from the provider's prompt cache and those written to it;
    `cache_write_long_tokens` are the part of the latter that is kept longer than usual, at a higher price.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_long_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return self._combined(other, operator.add)

    def __sub__(self, other: "Usage") -> "Usage":
        return self._combined(other, operator.sub)

    def merged(self, other: "Usage") -> "Usage":
        """The usage of one call, combined from events of its stream that each report some of the running totals."""
        return self._combined(other, max)

    def _combined(self, other: "Usage", combine: Callable[[int, int], int]) -> "Usage":
        return Usage(
            combine(self.calls, other.calls),
            combine(self.input_tokens, other.input_tokens),
            combine(self.output_tokens, other.output_tokens),
            combine(self.cache_read_tokens, other.cache_read_tokens),
            combine(self.cache_write_tokens, other.cache_write_tokens),
            combine(self.cache_write_long_tokens, other.cache_write_long_tokens),
        )

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one attempt at an item, as its worker reports it.

    result: path of the document.
    earlier_attempt: an earlier attempt finished the item but was killed before it could report.
    """

    ending: Ending
    verdict: Verdict | None = None
    rounds: int = 0
    error: str | None = None
    details: tuple[str, ...] = ()
    retryable: bool = False
    result: str | None = None
    earlier_attempt: bool = False


@dataclass(frozen=True, slots=True)
class TakenItem:
    """A queued item that turns out, right before its worker would start, to be held or already ended by another run."""

    item: str
    outcome: Outcome


def failed(error: str, details: tuple[str, ...] = ()) -> Outcome:
    """A permanent failure: another attempt would fail in the same way."""
    return Outcome(Ending.FAILED, error=error, details=details)


def failed_transient(error: str, details: tuple[str, ...] = ()) -> Outcome:
    """A failure that another attempt may avoid."""
    return Outcome(Ending.FAILED, error=error, details=details, retryable=True)
