"""Anthropic's wire format, as far as the gateway reads it."""

from typing import Any

from agentos.core.results import Usage
from agentos.gateway.dialects.dialect import Dialect, Failure, Trouble, mapping, whole_number
from agentos.models.anthropic_refusals import limits_seen, read_refusal

_INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_TYPES = {
    Trouble.TOKEN: "authentication_error",
    Trouble.UNPAID: "billing_error",
    Trouble.NO_KEY: "permission_error",
    Trouble.UNKNOWN: "not_found_error",
    Trouble.LIMITED: "rate_limit_error",
    Trouble.UPGRADE: "invalid_request_error",
    Trouble.FAILING: "api_error",
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


def _words(trouble: Trouble, message: str, seconds: float | None) -> Any:
    return {"type": "error", "error": {"type": _TYPES[trouble], "message": message}}


DIALECT = Dialect(
    provider="anthropic",
    home="https://api.anthropic.com",
    base=lambda url: url,
    path=lambda path: path,
    is_free=lambda path: path.endswith("/count_tokens"),
    model=lambda path, body: str(body.get("model") or ""),
    credential=lambda secret: ("x-api-key", secret),
    refusal=read_refusal,
    limits=limits_seen,
    usage=_usage,
    failure=_failure,
    words=_words,
)
