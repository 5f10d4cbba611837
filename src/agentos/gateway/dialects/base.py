"""What the gateway needs to know about a provider's wire format, and the errors that it sends in that format."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from agentos.core.protocol.results import Usage
from agentos.core.ratelimit.limits import LimitSeen
from agentos.core.ratelimit.refusals import Refusal
from agentos.http.connection import Connection, Headers
from agentos.models.refusal_base import NOT_YET_HEADER

HeaderMap = Mapping[str, str]
JSON = ("content-type", "application/json")


class GatewayError(Enum):
    """The gateway's own errors, with their HTTP status."""

    INVALID = 400
    TOKEN = 401
    UNPAID = 402
    NO_KEY = 403
    UNKNOWN = 404
    LIMITED = 429
    UPGRADE = 426
    FAILING = 503


@dataclass(frozen=True, slots=True)
class StreamError:
    """An error inside a response with status 200; `status` is what it would have had as a response of its own."""

    status: int
    body: Any


@dataclass(frozen=True, slots=True)
class GatewayDialect:
    """One provider's wire format, as functions.

    home: base URL of the provider, unless a credential has one of its own
    base: completes a base URL
    path: maps a path under the gateway's prefix to one under the base URL
    is_unmetered: whether a path runs no model
    model: finds the model's name in path and body
    credential: the header that carries the key
    refusal: what an error response means for the key (status, body, headers, wall time)
    limits: the rate limits that response headers state
    usage: adds the usage that a JSON object of the response reports to what was known before
    failure: the error that a JSON object of the response reports
    error_body: body of an error that the gateway sends itself, with the seconds to wait if known
    version: the part of the base URL that stands below the gateway's prefix as well
    """

    provider: str
    home: str
    base: Callable[[str], str]
    path: Callable[[str], str]
    is_unmetered: Callable[[str], bool]
    model: Callable[[str, Mapping[str, Any]], str]
    credential: Callable[[str], tuple[str, str]]
    refusal: Callable[[int, Any, HeaderMap, float], Refusal | None]
    limits: Callable[[HeaderMap], tuple[LimitSeen, ...]]
    usage: Callable[[Any, Usage], Usage]
    failure: Callable[[Any], StreamError | None]
    error_body: Callable[[GatewayError, str, float | None], Any]
    version: str = ""


def mapping(value: object) -> Mapping[str, Any]:
    """The value if it is a JSON object, otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def send_response(connection: Connection, status: int, headers: Headers, body: bytes) -> None:
    connection.begin(status, [*headers, ("content-length", str(len(body)))])
    connection.put(body)
    connection.finish()


def send_error(  # noqa: PLR0913 - two of them optional
    connection: Connection,
    dialect: GatewayDialect,
    error: GatewayError,
    message: str,
    retry_after: float | None = None,
    headers: Headers = (),
) -> None:
    """Send an error in the provider's format. With `retry_after` the caller may retry, and keeps its place in line."""
    body = dialect.error_body(error, _prefixed(message), retry_after)
    hint: Headers = ()
    if retry_after is not None:
        hint = (("retry-after", str(max(1, round(retry_after)))), (NOT_YET_HEADER, "1"))
    send_response(connection, error.value, (JSON, *hint, *headers), json.dumps(body).encode())


def plain_error(connection: Connection, status: int, message: str) -> None:
    """Sends an error to a client whose expected format is unknown."""
    body = json.dumps({"error": {"message": _prefixed(message)}}).encode()
    send_response(connection, status, (JSON,), body)


def _prefixed(message: str) -> str:
    return f"agentos gateway: {message}"
