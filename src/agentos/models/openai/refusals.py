"""Reads refusals and rate limits from the responses of OpenAI and compatible servers."""

from collections.abc import Mapping
from typing import Any

from agentos.core.ratelimit.limits import Dimension, LimitSeen
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.models.refusal_base import (
    error_object,
    gateway_refusal,
    limits_in_headers,
    no_access,
    parse_duration,
    provider_error,
    rejected_key,
    retry_after,
)

_SPENT_CODES = {"insufficient_quota", "credit_balance_exhausted"}
_WAIT_CODES = {"rate_limit_exceeded", "slow_down"}
_SERVER_ERRORS = {"server_error", "service_unavailable_error", "overloaded_error"}
_SPENT_SUFFIXES = ("_spend_limit_exceeded", "_usage_limit_exceeded")
_DIMENSIONS = {"requests": Dimension.REQUESTS, "tokens": Dimension.TOKENS}


def read_refusal(
    status: int, body: Any, headers: Mapping[str, str], wall: float, message: str = ""
) -> Refusal | None:
    """What an error response means for the key; None if the request itself was wrong."""
    if refusal := gateway_refusal(headers, wall):
        return refusal
    code = str(error_object(body, body).get("code") or "")
    if code in _SPENT_CODES or code.endswith(_SPENT_SUFFIXES):
        return Refusal(RefusalKind.KEY_REJECTED, f"{status} {code}")
    if status == 429:
        hint = retry_after(headers, wall)
        hint = _seconds_to_reset(headers) if hint is None else hint
        return Refusal(RefusalKind.RATE_LIMITED, f"429 {code}".strip(), hint, limits=limits_seen(headers))
    return (
        rejected_key(status)
        or no_access(status, body)
        or provider_error(status, f"{status} {code}".strip(), headers, wall, message)
    )


def status_in_body(error: Mapping[str, Any]) -> int:
    """The status that an error object stands for when the response itself claims success."""
    code = error.get("code")
    if type(code) is int and 400 <= code < 600:
        return code
    if code == "server_is_overloaded" or error.get("type") in _SERVER_ERRORS:
        return 503
    return 429 if code in _WAIT_CODES else 400


def limits_seen(headers: Mapping[str, str]) -> tuple[LimitSeen, ...]:
    """The limits per minute that response headers state."""
    return limits_in_headers(headers, "x-ratelimit-limit-{}", _DIMENSIONS)


def _seconds_to_reset(headers: Mapping[str, str]) -> float | None:
    """Seconds until every limit that is used up has been reset."""
    used_up = [name for name in _DIMENSIONS if headers.get(f"x-ratelimit-remaining-{name}") == "0"]
    resets = [parse_duration(headers.get(f"x-ratelimit-reset-{name}", "")) for name in used_up]
    return max((reset for reset in resets if reset is not None), default=None)
