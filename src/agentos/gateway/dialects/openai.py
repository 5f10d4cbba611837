"""OpenAI's wire format as the gateway reads it."""

import re
from typing import Any

from agentos.core.protocol.results import Usage
from agentos.gateway.dialects.base import GatewayDialect, GatewayError, StreamError, mapping
from agentos.models.openai import ensure_version
from agentos.models.openai.refusals import limits_seen, read_refusal
from agentos.models.partial_answer import positive_int

_ERRORS = {
    GatewayError.INVALID: ("invalid_request_error", "unknown_price"),
    GatewayError.TOKEN: ("invalid_request_error", "invalid_api_key"),
    GatewayError.UNPAID: ("insufficient_quota", "insufficient_quota"),
    GatewayError.NO_KEY: ("invalid_request_error", "no_usable_key"),
    GatewayError.UNKNOWN: ("invalid_request_error", "unknown_url"),
    GatewayError.LIMITED: ("requests", "rate_limit_exceeded"),
    GatewayError.UPGRADE: ("invalid_request_error", "unsupported_protocol"),
    GatewayError.FAILING: ("server_error", "server_error"),
}
# Storage and administration; the model calls of a batch are made, and billed, later.
_UNMETERED = re.compile(
    r"^/(?:files|uploads|batches|vector_stores|conversations|containers)(?:/|$)|/input_tokens$|/cancel$"
)
_RATE_LIMIT_CODES = ("rate_limit_exceeded", "slow_down")
_SERVER_ERROR_CODES = ("", "server_error", "server_is_overloaded")


def _usage(parsed: Any, before: Usage) -> Usage:
    """Chat completions and embeddings name the fields differently from responses."""
    response = mapping(parsed)
    counted = mapping(response.get("usage") or mapping(response.get("response")).get("usage"))
    if not counted:
        return before
    input_tokens = positive_int(counted.get("prompt_tokens")) or positive_int(counted.get("input_tokens"))
    details = mapping(counted.get("prompt_tokens_details") or counted.get("input_tokens_details"))
    read = min(positive_int(details.get("cached_tokens")), input_tokens)
    written = min(positive_int(details.get("cache_write_tokens")), input_tokens - read)
    long = positive_int(mapping(details.get("cache_write_tokens_details")).get("ttl_12h_tokens"))
    found = Usage(
        calls=1,
        input_tokens=input_tokens,
        output_tokens=positive_int(counted.get("completion_tokens"))
        or positive_int(counted.get("output_tokens")),
        cache_read_tokens=read,
        cache_write_tokens=written,
        cache_write_long_tokens=min(long, written),
    )
    return before.merged(found)


def _failure(parsed: Any) -> StreamError | None:
    response = mapping(parsed)
    error = mapping(response.get("error") or mapping(response.get("response")).get("error"))
    if not error and response.get("type") == "error":
        error = response
    if not error:
        return None
    return StreamError(_status(error.get("code")), {"error": error})


def _status(code: object) -> int:
    """OpenAI's code is a word; compatible servers put an HTTP status there."""
    if number := positive_int(code):
        return number
    name = str(code or "")
    return 429 if name in _RATE_LIMIT_CODES else 500 if name in _SERVER_ERROR_CODES else 400


def _error_body(error: GatewayError, message: str, retry_after: float | None) -> Any:
    kind, code = _ERRORS[error]
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


DIALECT = GatewayDialect(
    provider="openai",
    home="https://api.openai.com/v1",
    base=ensure_version,
    # The base URL already contains the version.
    path=lambda path: path.removeprefix("/v1"),
    is_unmetered=lambda path: _UNMETERED.search(path) is not None,
    model=lambda path, body: str(body.get("model") or ""),
    credential=lambda secret: ("authorization", f"Bearer {secret}"),
    refusal=read_refusal,
    limits=limits_seen,
    usage=_usage,
    failure=_failure,
    error_body=_error_body,
    version="/v1",
)
