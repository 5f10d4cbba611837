"""What the vendors' error responses have in common: rejected keys, Retry-After, rate limits in headers."""

import email.utils
import re
from collections.abc import Mapping
from datetime import UTC
from typing import Any

from agentos.core.ratelimit.limits import Dimension, LimitSeen
from agentos.core.ratelimit.refusals import Refusal, RefusalKind

MAX_DIGITS = 15  # of a limit in a header; Python refuses to convert thousands of them
MAX_SENTENCE = 500  # characters
MAX_ENTRIES = 5  # of a list of errors
_SENTENCE_FIELDS = ("error", "message", "detail", "msg", "title")
_REJECTED_KEY = {401: "unauthorised", 402: "unpaid"}
_PROTOBUF_DURATION = re.compile(r"(-?\d+(?:\.\d+)?)s")
_GO_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")


NOT_YET_HEADER = "agentos-not-yet"
OVER_BUDGET_HEADER = "agentos-over-budget"
BUDGET_HEADER = "agentos-budget"


def gateway_refusal(headers: Mapping[str, str], wall: float) -> Refusal | None:
    """The refusal of a shared gateway that has no free key yet and keeps the call's place, or whose budget is spent."""
    if reason := headers.get(OVER_BUDGET_HEADER):
        return Refusal(RefusalKind.OVER_BUDGET, reason)
    if NOT_YET_HEADER not in headers:
        return None
    return Refusal(RefusalKind.NOT_YET, "the gateway has no free key yet", retry_after(headers, wall) or 0.0)


def rejected_key(status: int) -> Refusal | None:
    """The refusal for a status that says that the key itself is not accepted."""
    if status not in _REJECTED_KEY:
        return None
    return Refusal(RefusalKind.KEY_REJECTED, f"{status} {_REJECTED_KEY[status]}")


def no_access(status: int, body: Any) -> Refusal | None:
    """The refusal for a 403: the key is valid, but not for this model or this file."""
    if status != 403:
        return None
    return Refusal(RefusalKind.NO_ACCESS, f"403 {_sentence(body) or 'forbidden'}")


def provider_error(
    status: int, reason: str, headers: Mapping[str, str], wall: float, message: str = ""
) -> Refusal | None:
    """The refusal for a timeout or a server error, with the server's own message.

    A 501 is the request's fault: the server does not offer what it asks for, however often it is repeated.
    """
    if (status != 408 and status < 500) or status == 501:
        return None
    words = f"{reason}: {message}" if message else reason
    return Refusal(RefusalKind.PROVIDER_ERROR, words, seconds=retry_after(headers, wall))


def server_message(response: Any, body: Any) -> str:
    """The sentence in which a server explains an error, whatever the form of its body."""
    return _sentence(body) or _sentence(_body_of(response)) or "error without a message"


def _body_of(response: Any) -> Any:
    """The response's body as JSON, or as text."""
    try:
        return response.json()
    except (AttributeError, ValueError, TypeError, RuntimeError, RecursionError):
        text = getattr(response, "text", "")
        return text if isinstance(text, str) else ""


def _sentence(body: Any, levels: int = 4) -> str:
    """Look where servers put the message: error.message (the vendors), detail, detail[].msg (FastAPI), error, message."""
    if isinstance(body, str):
        return " ".join(body[: 10 * MAX_SENTENCE].split())[:MAX_SENTENCE]
    if not levels:
        return ""
    if isinstance(body, list):
        return "; ".join(filter(None, (_sentence(entry, levels - 1) for entry in body[:MAX_ENTRIES])))
    if not isinstance(body, dict):
        return ""
    if isinstance(place := body.get("loc"), list) and isinstance(body.get("msg"), str):
        return f"{'.'.join(map(str, place[:MAX_ENTRIES]))}: {body['msg']}"[:MAX_SENTENCE]
    return next(filter(None, (_sentence(body.get(name), levels - 1) for name in _SENTENCE_FIELDS)), "")


def error_object(body: Any, default: Any = None) -> dict[str, Any]:
    """The `error` object of a JSON body; empty if there is none."""
    error = body.get("error", default) if isinstance(body, dict) else None
    return error if isinstance(error, dict) else {}


def limits_in_headers(
    headers: Mapping[str, str], pattern: str, dimensions: Mapping[str, Dimension]
) -> tuple[LimitSeen, ...]:
    """The limits per minute that headers state; `pattern` turns the name of a dimension into that of a header."""
    found = []
    for name, dimension in dimensions.items():
        value = headers.get(pattern.format(name), "")
        if len(value) <= MAX_DIGITS and value.isascii() and value.isdigit() and int(value):
            found.append(LimitSeen(dimension, float(value)))
    return tuple(found)


def retry_after(headers: Mapping[str, str], wall: float) -> float | None:
    """The seconds to wait according to Retry-After or retry-after-ms, given as milliseconds, seconds or a date."""
    if (milliseconds := _number(headers.get("retry-after-ms", ""))) is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "").strip()
    if (seconds := _number(value)) is not None:
        return seconds
    try:
        when = email.utils.parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(0.0, when.timestamp() - wall)


def protobuf_duration(text: object) -> float | None:
    """Seconds in a duration such as "36s" or "0.5s"."""
    found = _PROTOBUF_DURATION.fullmatch(text) if isinstance(text, str) else None
    return float(found[1]) if found else None


def parse_duration(text: str) -> float | None:
    """Seconds in a duration as Go writes it, such as "6m0s" or "12ms"."""
    found = _GO_DURATION.fullmatch(text.strip())
    if not text.strip() or found is None:
        return None
    hours, minutes, seconds, milliseconds = (float(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds + milliseconds / 1000


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
