"""The neutral words that every wire format is translated into."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Purpose(StrEnum):
    GENERATE = "generate"
    COUNT = "count"
    LIST = "list"


class Delivery(StrEnum):
    WHOLE = "whole"
    EVENTS = "events"
    ARRAY = "array"


class Finish(StrEnum):
    STOP = "stop"
    MAX_TOKENS = "max tokens"
    SAFETY = "safety"
    BLOCKED = "blocked"


class Reason(StrEnum):
    """Why a call is refused; each wire format has its own status and body for it."""

    MINUTE_QUOTA = "minute quota"
    DAY_QUOTA = "day quota"
    BOTH_QUOTAS = "minute and day quota"
    UNEXPLAINED_QUOTA = "unexplained quota"
    KEY_MISSING = "key missing"
    KEY_INVALID = "key invalid"
    BAD_REQUEST = "bad request"
    UNAUTHENTICATED = "unauthenticated"
    UNPAID = "unpaid"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not found"
    INTERNAL = "internal"
    BAD_GATEWAY = "bad gateway"
    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"
    OVERLOADED = "overloaded"


class Ending(StrEnum):
    """How the server leaves an exchange."""

    COMPLETE = "complete"
    SILENCE = "silence"
    RESET_AT_ONCE = "reset at once"
    RESET_MIDWAY = "reset midway"


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Reply:
    """`length` announces the body's size, None sends it in chunks; `pause` waits before each piece."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: Iterable[bytes]
    length: int | None = None
    pause: float = 0.0
    ending: Ending = Ending.COMPLETE


@dataclass(frozen=True, slots=True)
class Question:
    model: str
    system: str
    text: str
    wants_json: bool
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    purpose: Purpose
    secret: str = field(repr=False)
    question: Question
    delivery: Delivery = Delivery.WHOLE


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    prompt_tokens: int
    finish: Finish = Finish.STOP


@dataclass(frozen=True, slots=True)
class Refusal:
    """`retry_delay` stands in the body, `retry_after` is sent as the header, whatever it says."""

    reason: Reason
    message: str = ""
    retry_delay: float | None = None
    retry_after: str | None = None
    limit: int | None = None
    model: str = ""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One vendor's wire format: bytes to neutral words, neutral words to bytes."""

    claims: Callable[[Request], bool]
    read: Callable[[Request], Asked | Refusal]
    answer: Callable[[Asked, Answer], Reply]
    count: Callable[[int], Reply]
    models: Callable[[], Reply]
    refuse: Callable[[Refusal], Reply]


def count_tokens(text: str) -> int:
    return (len(text) + 3) // 4


def whole(status: int, content_type: str, body: bytes, *headers: tuple[str, str]) -> Reply:
    return Reply(status, (("content-type", content_type), *headers), (body,), length=len(body))
