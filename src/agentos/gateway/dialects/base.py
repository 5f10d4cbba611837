"""What one vendor's wire format asks of the gateway."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from agentos.core.protocol.results import Usage
from agentos.core.ratelimit.limits import LimitSeen
from agentos.core.ratelimit.refusals import Refusal

Headers = Mapping[str, str]


class GatewayError(Enum):
    """What the gateway itself has to say no to, with its status."""

    TOKEN = 401
    UNPAID = 402
    NO_KEY = 403
    UNKNOWN = 404
    LIMITED = 429
    UPGRADE = 501
    FAILING = 503


@dataclass(frozen=True, slots=True)
class Failure:
    """An error in the middle of a stream, with the status that it would have had before."""

    status: int
    body: Any


@dataclass(frozen=True, slots=True)
class GatewayDialect:
    """`home` is where the provider stands if its credential does not say otherwise.

    `path` turns the path below the gateway's own into the one below the base URL; `model` is told the path and
    the body; `usage` is given every JSON object of an answer in turn, with what was counted before.
    """

    provider: str
    home: str
    base: Callable[[str], str]
    path: Callable[[str], str]
    is_unmetered: Callable[[str], bool]
    model: Callable[[str, Mapping[str, Any]], str]
    credential: Callable[[str], tuple[str, str]]
    refusal: Callable[[int, Any, Headers, float], Refusal | None]
    limits: Callable[[Headers], tuple[LimitSeen, ...]]
    usage: Callable[[Any, Usage], Usage]
    failure: Callable[[Any], Failure | None]
    error_body: Callable[[GatewayError, str, float | None], Any]


def whole_number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
