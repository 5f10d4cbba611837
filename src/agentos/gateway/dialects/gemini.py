"""Gemini's wire format, as far as the gateway reads it."""

import re
from collections.abc import Mapping
from typing import Any

from agentos.core.protocol.results import Usage
from agentos.gateway.dialects.base import Failure, GatewayDialect, GatewayError, mapping, whole_number
from agentos.models.gemini.refusals import read_refusal

_MODEL = re.compile(r"/(?:models|tunedModels)/([^/:]+)")
_STATUSES = {
    GatewayError.TOKEN: "UNAUTHENTICATED",
    GatewayError.UNPAID: "FAILED_PRECONDITION",
    GatewayError.NO_KEY: "PERMISSION_DENIED",
    GatewayError.UNKNOWN: "NOT_FOUND",
    GatewayError.LIMITED: "RESOURCE_EXHAUSTED",
    GatewayError.UPGRADE: "UNIMPLEMENTED",
    GatewayError.FAILING: "UNAVAILABLE",
}


def _model(path: str, body: Mapping[str, Any]) -> str:
    found = _MODEL.search(path)
    return found[1] if found else str(body.get("model") or "").removeprefix("models/")


def _usage(found: Any, before: Usage) -> Usage:
    """Each part of a stream counts all so far; thoughts are paid for like what is said."""
    counted = mapping(mapping(found).get("usageMetadata"))
    if not counted:
        return before
    going_in = whole_number(counted.get("promptTokenCount")) + whole_number(
        counted.get("toolUsePromptTokenCount")
    )
    coming_out = whole_number(counted.get("candidatesTokenCount")) + whole_number(
        counted.get("thoughtsTokenCount")
    )
    return Usage(1, max(going_in, before.input_tokens), max(coming_out, before.output_tokens))


def _failure(found: Any) -> Failure | None:
    error = mapping(mapping(found).get("error"))
    return Failure(whole_number(error.get("code")) or 500, found) if error else None


def _words(trouble: GatewayError, message: str, seconds: float | None) -> Any:
    details = []
    if trouble is GatewayError.TOKEN:
        details.append(
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "API_KEY_INVALID",
                "domain": "googleapis.com",
            }
        )
    if seconds is not None:
        details.append(
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{max(1, round(seconds))}s"}
        )
    error = {"code": trouble.value, "message": message, "status": _STATUSES[trouble]}
    return {"error": error | ({"details": details} if details else {})}


DIALECT = GatewayDialect(
    provider="gemini",
    home="https://generativelanguage.googleapis.com",
    base=lambda url: url,
    path=lambda path: path,
    is_unmetered=lambda path: path.endswith(":countTokens"),
    model=_model,
    credential=lambda secret: ("x-goog-api-key", secret),
    refusal=read_refusal,
    limits=lambda headers: (),
    usage=_usage,
    failure=_failure,
    error_body=_words,
)
