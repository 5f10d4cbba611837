"""Anthropic's wire format, as far as the gateway reads it."""

from typing import Any

from agentos.core.protocol.results import Usage
from agentos.gateway.dialects.base import Failure, GatewayDialect, GatewayError, mapping, whole_number
from agentos.models.anthropic.refusals import limits_seen, read_refusal

_INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_TYPES = {
    GatewayError.TOKEN: "authentication_error",
    GatewayError.UNPAID: "billing_error",
    GatewayError.NO_KEY: "permission_error",
    GatewayError.UNKNOWN: "not_found_error",
    GatewayError.LIMITED: "rate_limit_error",
    GatewayError.UPGRADE: "invalid_request_error",
    GatewayError.FAILING: "api_error",
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


def _usage(found: Any, before: Usage) -> Usage:
    """A stream tells what goes in with its first event, what comes out with its last."""
    answer = mapping(found)
    counted = mapping(answer.get("usage") or mapping(answer.get("message")).get("usage"))
    if not counted:
        return before
    going_in = sum(whole_number(counted.get(name)) for name in _INPUT)
    coming_out = whole_number(counted.get("output_tokens"))
    return Usage(1, max(going_in, before.input_tokens), max(coming_out, before.output_tokens))


def _failure(found: Any) -> Failure | None:
    answer = mapping(found)
    if answer.get("type") != "error":
        return None
    return Failure(_STATUSES.get(str(mapping(answer.get("error")).get("type")), 500), found)


def _words(trouble: GatewayError, message: str, seconds: float | None) -> Any:
    return {"type": "error", "error": {"type": _TYPES[trouble], "message": message}}


DIALECT = GatewayDialect(
    provider="anthropic",
    home="https://api.anthropic.com",
    base=lambda url: url,
    path=lambda path: path,
    is_unmetered=lambda path: path.endswith("/count_tokens"),
    model=lambda path, body: str(body.get("model") or ""),
    credential=lambda secret: ("x-api-key", secret),
    refusal=read_refusal,
    limits=limits_seen,
    usage=_usage,
    failure=_failure,
    error_body=_words,
)
