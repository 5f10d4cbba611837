"""Vendor-neutral requests, answers and refusals, which every wire format is translated to and from."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Headers = tuple[tuple[str, str], ...]
# What a request body that does not have the expected form raises while it is read.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError)

STREAM_CHUNK = 400  # characters per streamed event


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
    """Why an answer ends. `OVERLOADED` is a stream that ends with an error halfway; whole answers cannot."""

    STOP = "stop"
    MAX_TOKENS = "max tokens"
    SAFETY = "safety"
    BLOCKED = "blocked"
    OVERLOADED = "overloaded"


class Quota(StrEnum):
    """What a limit counts; all but the last two are counted per minute."""

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
    """How the server ends an exchange."""

    COMPLETE = "complete"
    SILENCE = "silence"
    RESET_AT_ONCE = "reset at once"
    RESET_MIDWAY = "reset midway"


@dataclass(frozen=True, slots=True)
class NeutralRequest:
    """An HTTP request with a decoded path and query."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP response; without `length` it is sent chunked. `pause` is the wait before each piece, in seconds."""

    status: int
    headers: Headers
    body: Iterable[bytes]
    length: int | None = None
    pause: float = 0.0
    ending: ReplyEnding = ReplyEnding.COMPLETE


@dataclass(frozen=True, slots=True)
class NeutralQuestion:
    """A prompt.

    reserved: output tokens that count against the limits before they are written
    tool: name of the tool that must be used
    schema: JSON schema of the answer or of that tool's arguments
    """

    model: str
    system: str
    text: str
    wants_json: bool
    max_tokens: int | None = None
    reserved: int = 0
    tool: str = ""
    schema: str = ""


@dataclass(frozen=True, slots=True)
class ForcedTool:
    """A tool that the answer must use. `parameters` is a JSON schema."""

    name: str = ""
    parameters: str = ""


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
    """A limit that a call exceeds; `wait` is the number of seconds until the call would fit."""

    quota: Quota
    limit: int | None = None
    wait: float | None = None


@dataclass(frozen=True, slots=True)
class NeutralRefusal:
    """An error response.

    retry_delay: seconds to wait, sent wherever the vendor puts them
    retry_after: text of the Retry-After header, sent unchanged
    code: the vendor's error code, if it is not the usual one
    """

    reason: Reason
    message: str = ""
    retry_delay: float | None = None
    retry_after: str | None = None
    violations: tuple[Violation, ...] = ()
    model: str = ""
    code: str = ""
    serial: int = 0


@dataclass(frozen=True, slots=True)
class VendorError:
    """How a vendor words an error."""

    status: int
    type: str
    message: str
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Gauge:
    """State of a limit; it is fully available again at `resets_at`."""

    quota: Quota
    limit: int
    remaining: int
    resets_at: float


@dataclass(frozen=True, slots=True)
class Stamp:
    """What the headers of every response are made of."""

    serial: int
    now: float
    gauges: tuple[Gauge, ...] = ()


@dataclass(frozen=True, slots=True)
class OfflineDialect:
    """One wire format: reads requests into neutral ones, and writes neutral answers and refusals as responses."""

    claims: Callable[[NeutralRequest], bool]
    read: Callable[[NeutralRequest], ParsedRequest | NeutralRefusal]
    answer: Callable[[ParsedRequest, NeutralAnswer], Reply]
    count: Callable[[int], Reply]
    models: Callable[[], Reply]
    refuse: Callable[[NeutralRefusal], Reply]
    headers: Callable[[Stamp], Headers]


def count_tokens(text: str) -> int:
    return (len(text) + 3) // 4


def whole_reply(status: int, content_type: str, body: bytes, *headers: tuple[str, str]) -> Reply:
    return Reply(status, (("content-type", content_type), *headers), (body,), length=len(body))


def json_reply(value: object, status: int = 200, headers: Headers = ()) -> Reply:
    return whole_reply(status, "application/json", json.dumps(value).encode(), *headers)


def event_stream(events: Iterable[bytes]) -> Reply:
    return Reply(200, (("content-type", "text/event-stream; charset=utf-8"),), events)


def model_list_request(secret: str) -> ParsedRequest:
    """A request for the list of models."""
    return ParsedRequest(Purpose.LIST, secret, NeutralQuestion("", "", "", wants_json=False))


def schema_text(schema: object) -> str:
    """A schema of a request as text; empty if there is none."""
    return json.dumps(schema) if isinstance(schema, dict) else ""


def json_object(text: str) -> dict[str, object] | None:
    """The object that the text encodes; None for anything else, such as an answer that was cut or corrupted."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def invalid_body(error: Exception) -> NeutralRefusal:
    return NeutralRefusal(Reason.BAD_REQUEST, f"The request body is not valid: {type(error).__name__}.")


def stream_chunks(text: str) -> list[str]:
    """The text in pieces for streaming; at least one, even if the text is empty."""
    return [text[start : start + STREAM_CHUNK] for start in range(0, max(len(text), 1), STREAM_CHUNK)]


def bearer(request: NeutralRequest) -> str:
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


def retry_hint(refusal: NeutralRefusal) -> float | None:
    """Seconds to wait: the configured delay, else the longest wait of the exceeded limits."""
    waits = [violation.wait for violation in refusal.violations if violation.wait is not None]
    return max(waits, default=None) if refusal.retry_delay is None else refusal.retry_delay


def optional_positive(value: object) -> int | None:
    """Checks a number that may be missing; raises ValueError if it is not a positive integer."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"expected a positive integer, found {value!r}")
    return value
