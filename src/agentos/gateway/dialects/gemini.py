"""Gemini's wire format as the gateway reads it."""

import re
from collections.abc import Mapping
from typing import Any

from agentos.core.protocol.results import Usage
from agentos.gateway.dialects.base import GatewayDialect, GatewayError, StreamError, mapping
from agentos.models.gemini.refusals import read_refusal
from agentos.models.partial_answer import positive_int

_MODEL = re.compile(r"/(?:models|tunedModels)/([^/:]+)")
# Storage and administration; the model calls of a batch are made, and billed, later.
_UNMETERED = re.compile(
    r"^/upload/|^/v\w+/(?:files|batches|cachedContents|fileSearchStores|operations)(?:[/:]|$)"
    r"|:(?:countTokens|batchGenerateContent|asyncBatchEmbedContent|cancel)$"
)
_WITHOUT_VERSION = ("/models/", "/tunedModels/", "/files", "/cachedContents")
_STATUSES = {
    GatewayError.INVALID: "INVALID_ARGUMENT",
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


def _usage(parsed: Any, before: Usage) -> Usage:
    """Every event of a stream reports the totals so far. Thoughts are billed as output."""
    counted = mapping(mapping(parsed).get("usageMetadata"))
    if not counted:
        return before
    input_tokens = positive_int(counted.get("promptTokenCount")) + positive_int(
        counted.get("toolUsePromptTokenCount")
    )
    output_tokens = positive_int(counted.get("candidatesTokenCount")) + positive_int(
        counted.get("thoughtsTokenCount")
    )
    read = min(positive_int(counted.get("cachedContentTokenCount")), input_tokens)
    return before.merged(Usage(1, input_tokens, output_tokens, read))


def _failure(parsed: Any) -> StreamError | None:
    error = mapping(mapping(parsed).get("error"))
    return StreamError(positive_int(error.get("code")) or 500, parsed) if error else None


def _error_body(error: GatewayError, message: str, retry_after: float | None) -> Any:
    details = []
    if error is GatewayError.TOKEN:
        details.append(
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "API_KEY_INVALID",
                "domain": "googleapis.com",
            }
        )
    if retry_after is not None:
        details.append(
            {
                "@type": "type.googleapis.com/google.rpc.RetryInfo",
                "retryDelay": f"{max(1, round(retry_after))}s",
            }
        )
    body = {"code": error.value, "message": message, "status": _STATUSES[error]}
    return {"error": body | ({"details": details} if details else {})}


DIALECT = GatewayDialect(
    provider="gemini",
    home="https://generativelanguage.googleapis.com",
    base=lambda url: url,
    # LiteLLM expects the version in the base URL.
    path=lambda path: f"/v1beta{path}" if path.startswith(_WITHOUT_VERSION) else path,
    is_unmetered=lambda path: _UNMETERED.search(path) is not None,
    model=_model,
    credential=lambda secret: ("x-goog-api-key", secret),
    refusal=read_refusal,
    limits=lambda headers: (),
    usage=_usage,
    failure=_failure,
    error_body=_error_body,
)
