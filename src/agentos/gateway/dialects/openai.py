"""OpenAI's wire format, as far as the gateway reads it."""

from typing import Any

from agentos.core.protocol.results import Usage
from agentos.gateway.dialects.base import Failure, GatewayDialect, GatewayError, mapping, whole_number
from agentos.models.openai.address import ensure_version
from agentos.models.openai.refusals import limits_seen, read_refusal

_ERRORS = {
    GatewayError.TOKEN: ("invalid_request_error", "invalid_api_key"),
    GatewayError.UNPAID: ("insufficient_quota", "insufficient_quota"),
    GatewayError.NO_KEY: ("invalid_request_error", "no_usable_key"),
    GatewayError.UNKNOWN: ("invalid_request_error", "unknown_url"),
    GatewayError.LIMITED: ("requests", "rate_limit_exceeded"),
    GatewayError.UPGRADE: ("invalid_request_error", "unsupported_protocol"),
    GatewayError.FAILING: ("server_error", "server_error"),
}
_WAIT = ("rate_limit_exceeded", "slow_down")
_THEIR_OWN = ("", "server_error", "server_is_overloaded")


def _usage(found: Any, before: Usage) -> Usage:
    """Completions, embeddings and responses have names of their own for the same."""
    answer = mapping(found)
    counted = mapping(answer.get("usage") or mapping(answer.get("response")).get("usage"))
    if not counted:
        return before
    going_in = whole_number(counted.get("prompt_tokens")) or whole_number(counted.get("input_tokens"))
    coming_out = whole_number(counted.get("completion_tokens")) or whole_number(counted.get("output_tokens"))
    return Usage(1, max(going_in, before.input_tokens), max(coming_out, before.output_tokens))


def _failure(found: Any) -> Failure | None:
    answer = mapping(found)
    error = mapping(answer.get("error") or mapping(answer.get("response")).get("error"))
    if not error and answer.get("type") == "error":
        error = answer
    if not error:
        return None
    return Failure(_status(error.get("code")), {"error": error})


def _status(code: object) -> int:
    """Servers like OpenAI's put a status there, where OpenAI puts a word."""
    if number := whole_number(code):
        return number
    word = str(code or "")
    return 429 if word in _WAIT else 500 if word in _THEIR_OWN else 400


def _words(trouble: GatewayError, message: str, seconds: float | None) -> Any:
    kind, code = _ERRORS[trouble]
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


DIALECT = GatewayDialect(
    provider="openai",
    home="https://api.openai.com/v1",
    base=lambda url: ensure_version(url),
    # The version stands in the base URL, whatever it is there.
    path=lambda path: path.removeprefix("/v1"),
    is_unmetered=lambda path: path.endswith("/input_tokens"),
    model=lambda path, body: str(body.get("model") or ""),
    credential=lambda secret: ("authorization", f"Bearer {secret}"),
    refusal=read_refusal,
    limits=limits_seen,
    usage=_usage,
    failure=_failure,
    error_body=_words,
)
