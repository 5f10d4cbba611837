"""What a refusal of Anthropic's means, and what its headers say of limits."""

from collections.abc import Mapping
from typing import Any

from agentos.core.ratelimit.limits import Dimension, LimitSeen
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.models.retry_after import retry_after

_REJECTED = {401: "unauthorised", 402: "unpaid", 403: "forbidden"}
_SPENT = {"enforced_spend_limit_reached"}
_COUNTED = {
    "requests": Dimension.REQUESTS,
    "tokens": Dimension.TOKENS,
    "input-tokens": Dimension.INPUT,
    "output-tokens": Dimension.OUTPUT,
}


def read_refusal(code: int, body: Any, headers: Mapping[str, str], wall: float) -> Refusal | None:
    """None for a bad request of our own making."""
    error = _error(body)
    if code in _REJECTED:
        return Refusal(RefusalKind.KEY_REJECTED, f"{code} {_REJECTED[code]}")
    if _code(error) in _SPENT or (code == 400 and _code(error) == "spend_limit_reached"):
        return Refusal(RefusalKind.KEY_REJECTED, f"{code} {_code(error)}")
    if code == 429:
        limits = limits_seen(headers)
        return Refusal(
            RefusalKind.RATE_LIMITED, f"429 {_code(error)}".strip(), retry_after(headers, wall), limits=limits
        )
    if code == 408 or code >= 500 or error.get("type") == "overloaded_error":
        return Refusal(RefusalKind.PROVIDER_ERROR, str(code), retry_after(headers, wall))
    return None


def limits_seen(headers: Mapping[str, str]) -> tuple[LimitSeen, ...]:
    """The limits per minute that every answer names."""
    found = []
    for name, dimension in _COUNTED.items():
        value = headers.get(f"anthropic-ratelimit-{name}-limit", "")
        if value.isascii() and value.isdigit() and int(value):
            found.append(LimitSeen(dimension, float(value)))
    return tuple(found)


def _error(body: Any) -> dict[str, Any]:
    error = body.get("error") if isinstance(body, dict) else None
    return error if isinstance(error, dict) else {}


def _code(error: dict[str, Any]) -> str:
    details = error.get("details")
    return str(details.get("error_code", "")) if isinstance(details, dict) else ""
