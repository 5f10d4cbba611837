"""Anthropic's wire format as the gateway reads it."""

import re
from typing import Any

from agentos.core.protocol.results import Usage
from agentos.gateway.dialects.base import GatewayDialect, GatewayError, StreamError, mapping
from agentos.models.anthropic.refusals import limits_seen, read_refusal
from agentos.models.partial_answer import positive_int

_TYPES = {
    GatewayError.INVALID: "invalid_request_error",
    GatewayError.TOKEN: "authentication_error",
    GatewayError.UNPAID: "billing_error",
    GatewayError.NO_KEY: "permission_error",
    GatewayError.UNKNOWN: "not_found_error",
    GatewayError.LIMITED: "rate_limit_error",
    GatewayError.UPGRADE: "invalid_request_error",
    GatewayError.FAILING: "api_error",
}
# Storage and administration; the model calls of a batch are made, and billed, later.
_UNMETERED = re.compile(r"^/v1/(?:files|skills|messages/batches)(?:/|$)|/count_tokens$")
_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "rate_limit_error": 429,
    "overloaded_error": 529,
}


def _usage(parsed: Any, before: Usage) -> Usage:
    """A stream reports input tokens in its first event and output tokens in its last."""
    response = mapping(parsed)
    counted = mapping(response.get("usage") or mapping(response.get("message")).get("usage"))
    if not counted:
        return before
    read = positive_int(counted.get("cache_read_input_tokens"))
    written = positive_int(counted.get("cache_creation_input_tokens"))
    long = positive_int(mapping(counted.get("cache_creation")).get("ephemeral_1h_input_tokens"))
    found = Usage(
        calls=1,
        input_tokens=positive_int(counted.get("input_tokens")) + read + written,
        output_tokens=positive_int(counted.get("output_tokens")),
        cache_read_tokens=read,
        cache_write_tokens=written,
        cache_write_long_tokens=min(long, written),
    )
    return before.merged(found)


def _failure(parsed: Any) -> StreamError | None:
    response = mapping(parsed)
    if response.get("type") != "error":
        return None
    return StreamError(_STATUSES.get(str(mapping(response.get("error")).get("type")), 500), parsed)


def _error_body(error: GatewayError, message: str, retry_after: float | None) -> Any:
    return {"type": "error", "error": {"type": _TYPES[error], "message": message}}


DIALECT = GatewayDialect(
    provider="anthropic",
    home="https://api.anthropic.com",
    base=lambda url: url,
    # Some agents expect the version in the base URL.
    path=lambda path: path if path.startswith("/v1/") else f"/v1{path}",
    is_unmetered=lambda path: _UNMETERED.search(path) is not None,
    model=lambda path, body: str(body.get("model") or ""),
    credential=lambda secret: ("x-api-key", secret),
    refusal=read_refusal,
    limits=limits_seen,
    usage=_usage,
    failure=_failure,
    error_body=_error_body,
)
