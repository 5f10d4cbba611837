"""The neutral words that every wire format is translated into."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Headers = tuple[tuple[str, str], ...]

PIECE = 400


class Purpose(StrEnum):
    GENERATE = "generate"
    COUNT = "count"
    LIST = "list"


class Delivery(StrEnum):
    WHOLE = "whole"
    EVENTS = "events"
    EVENTS_WITH_USAGE = "events with usage"
    ARRAY = "array"


class Finish(StrEnum):
    """`OVERLOADED` is a stream that breaks off with an error halfway; no whole answer ends so."""

    STOP = "stop"
    MAX_TOKENS = "max tokens"
    SAFETY = "safety"
    BLOCKED = "blocked"
    OVERLOADED = "overloaded"


class Quota(StrEnum):
    """What a bucket may be limited in; all but the last two are counted per minute."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    INPUT_TOKENS = "input tokens"
    OUTPUT_TOKENS = "output tokens"
    DAY = "requests of a day"
    CONCURRENCY = "concurrency"


class Reason(StrEnum):
    """Why a call is refused; each wire format has its own status and body for it."""

    QUOTA = "quota"
    UNEXPLAINED_QUOTA = "unexplained quota"
    RAMP = "ramp"
    SPEND_LIMIT = "spend limit"
    OWN_SPEND_LIMIT = "spend limit of the user's own"
    INSUFFICIENT_QUOTA = "insufficient quota"
    NO_CREDIT = "no credit"
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


class ReplyEnding(StrEnum):
    """How the server leaves an exchange."""

    COMPLETE = "complete"
    SILENCE = "silence"
    RESET_AT_ONCE = "reset at once"
    RESET_MIDWAY = "reset midway"


@dataclass(frozen=True, slots=True)
class NeutralRequest:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Reply:
    """`length` announces the body's size, None sends it in chunks; `pause` waits before each piece."""

    status: int
    headers: Headers
    body: Iterable[bytes]
    length: int | None = None
    pause: float = 0.0
    ending: ReplyEnding = ReplyEnding.COMPLETE


@dataclass(frozen=True, slots=True)
class NeutralQuestion:
    """`reserved` are the tokens of the answer that count against a limit before they are written;
    `tool` is the one that has to be used."""

    model: str
    system: str
    text: str
    wants_json: bool
    max_tokens: int | None = None
    reserved: int = 0
    tool: str = ""


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    purpose: Purpose
    secret: str = field(repr=False)
    question: NeutralQuestion
    delivery: Delivery = Delivery.WHOLE


@dataclass(frozen=True, slots=True)
class NeutralAnswer:
    text: str
    prompt_tokens: int
    finish: Finish = Finish.STOP
    serial: int = 0
    now: float = 0.0


@dataclass(frozen=True, slots=True)
class Violation:
    """A limit that a call is over; `wait` is when it would be under it."""

    quota: Quota
    limit: int | None = None
    wait: float | None = None


@dataclass(frozen=True, slots=True)
class NeutralRefusal:
    """`retry_delay` is the hint, in the header or in the body; `retry_after` is sent as the header,
    whatever it says; `code` is the vendor's word for the cause, where it is not the usual one."""

    reason: Reason
    message: str = ""
    retry_delay: float | None = None
    retry_after: str | None = None
    violations: tuple[Violation, ...] = ()
    model: str = ""
    code: str = ""
    serial: int = 0


@dataclass(frozen=True, slots=True)
class Gauge:
    """How far a limit is used up; it is whole again at `resets_at`."""

    quota: Quota
    limit: int
    remaining: int
    resets_at: float


@dataclass(frozen=True, slots=True)
class Stamp:
    """What is told of every call beside its answer."""

    serial: int
    now: float
    gauges: tuple[Gauge, ...] = ()


@dataclass(frozen=True, slots=True)
class OfflineDialect:
    """One vendor's wire format: bytes to neutral words, neutral words to bytes."""

    claims: Callable[[NeutralRequest], bool]
    read: Callable[[NeutralRequest], ParsedRequest | NeutralRefusal]
    answer: Callable[[ParsedRequest, NeutralAnswer], Reply]
    count: Callable[[int], Reply]
    models: Callable[[], Reply]
    refuse: Callable[[NeutralRefusal], Reply]
    headers: Callable[[Stamp], Headers]


def count_tokens(text: str) -> int:
    return (len(text) + 3) // 4


def whole(status: int, content_type: str, body: bytes, *headers: tuple[str, str]) -> Reply:
    return Reply(status, (("content-type", content_type), *headers), (body,), length=len(body))


def pieces(text: str) -> list[str]:
    """At least one, for an answer without text is streamed as well."""
    return [text[start : start + PIECE] for start in range(0, max(len(text), 1), PIECE)]


def bearer(request: NeutralRequest) -> str:
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


def hint_of(refusal: NeutralRefusal) -> float | None:
    """The delay that was asked for, else the longest wait of the limits that the call is over."""
    waits = [over.wait for over in refusal.violations if over.wait is not None]
    return max(waits, default=None) if refusal.retry_delay is None else refusal.retry_delay


def positive(value: object) -> int | None:
    """A number that may be left out; a ValueError says that it is none."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"a positive whole number was expected; found: {value!r}")
    return value
