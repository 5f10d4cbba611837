"""Reads refusals and rate limits from Anthropic's responses."""

from collections.abc import Mapping
from typing import Any

from agentos.core.ratelimit.limits import Dimension, LimitSeen
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.models.refusal_base import (
    error_object,
    gateway_refusal,
    limits_in_headers,
    no_access,
    provider_error,
    rejected_key,
    retry_after,
)

_DIMENSIONS = {
    "requests": Dimension.REQUESTS,
    "tokens": Dimension.TOKENS,
    "input-tokens": Dimension.INPUT,
    "output-tokens": Dimension.OUTPUT,
}
_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "rate_limit_error": 429,
    "overloaded_error": 529,
}


def status_in_body(body: Any) -> int:
    """The status that an error inside a stream stands for, where the response itself began with a 200."""
    return _STATUSES.get(str(error_object(body).get("type")), 500)


def read_refusal(
    status: int, body: Any, headers: Mapping[str, str], wall: float, message: str = ""
) -> Refusal | None:
    """What an error response means for the key; None if the request itself was wrong."""
    if refusal := gateway_refusal(headers, wall) or rejected_key(status) or no_access(status, body):
        return refusal
    error = error_object(body)
    details = error.get("details")
    code = str(details.get("error_code", "")) if isinstance(details, dict) else ""
    if code == "enforced_spend_limit_reached" or (status == 400 and code == "spend_limit_reached"):
        return Refusal(RefusalKind.KEY_REJECTED, f"{status} {code}")
    hint = retry_after(headers, wall)
    if status == 429:
        return Refusal(RefusalKind.RATE_LIMITED, f"429 {code}".strip(), hint, limits=limits_seen(headers))
    if error.get("type") == "overloaded_error":
        return Refusal(RefusalKind.PROVIDER_ERROR, str(status), hint)
    return provider_error(status, str(status), headers, wall, message)


def limits_seen(headers: Mapping[str, str]) -> tuple[LimitSeen, ...]:
    """The limits per minute that the headers of every response state."""
    return limits_in_headers(headers, "anthropic-ratelimit-{}-limit", _DIMENSIONS)
