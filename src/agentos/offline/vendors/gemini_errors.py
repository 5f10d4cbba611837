"""Gemini's error responses."""

import math
from dataclasses import dataclass
from typing import Any

from agentos.offline.vendors.neutral import NeutralRefusal, Quota, Reason, VendorError, Violation, retry_hint

TYPE = "type.googleapis.com/google.rpc."
METRIC = "generativelanguage.googleapis.com/generate_content_free_tier_"
HELP = {
    "@type": f"{TYPE}Help",
    "links": [
        {
            "description": "Learn more about Gemini API quotas",
            "url": "https://ai.google.dev/gemini-api/docs/rate-limits",
        }
    ],
}
# Google does not reveal when a daily quota ends.
MAX_RETRY_HINT = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class QuotaName:
    metric: str
    id: str


# Google has no other limits.
NAMES = {
    Quota.REQUESTS: QuotaName("requests", "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"),
    Quota.INPUT_TOKENS: QuotaName(
        "input_token_count", "GenerateContentInputTokensPerModelPerMinute-FreeTier"
    ),
    Quota.DAY: QuotaName("requests", "GenerateRequestsPerDayPerProjectPerModel-FreeTier"),
}


OVER_QUOTA = "You exceeded your current quota, please check your plan and billing details."
EXHAUSTED = "Resource has been exhausted (e.g. check quota)."
EMPTY_BALANCE = "The prepaid balance of this account is empty."
ERRORS = {
    Reason.QUOTA: VendorError(429, "RESOURCE_EXHAUSTED", OVER_QUOTA),
    Reason.UNEXPLAINED_QUOTA: VendorError(429, "RESOURCE_EXHAUSTED", EXHAUSTED),
    Reason.RAMP: VendorError(429, "RESOURCE_EXHAUSTED", EXHAUSTED),
    Reason.SPEND_LIMIT: VendorError(429, "RESOURCE_EXHAUSTED", "The spend cap of this project is reached."),
    Reason.OWN_SPEND_LIMIT: VendorError(
        429, "RESOURCE_EXHAUSTED", "The spend cap of this project is reached."
    ),
    Reason.INSUFFICIENT_QUOTA: VendorError(429, "RESOURCE_EXHAUSTED", OVER_QUOTA),
    Reason.NO_CREDIT: VendorError(402, "FAILED_PRECONDITION", EMPTY_BALANCE),
    Reason.KEY_MISSING: VendorError(
        403,
        "PERMISSION_DENIED",
        "Method doesn't allow unregistered callers (callers without established identity). "
        "Please use API Key or other form of API consumer identity to call this API.",
    ),
    Reason.KEY_INVALID: VendorError(
        400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."
    ),
    Reason.BAD_REQUEST: VendorError(400, "INVALID_ARGUMENT", "Request contains an invalid argument."),
    Reason.UNAUTHENTICATED: VendorError(
        401, "UNAUTHENTICATED", "Request had invalid authentication credentials."
    ),
    Reason.UNPAID: VendorError(402, "FAILED_PRECONDITION", EMPTY_BALANCE),
    Reason.FORBIDDEN: VendorError(403, "PERMISSION_DENIED", "The caller does not have permission"),
    Reason.NOT_FOUND: VendorError(404, "NOT_FOUND", "Requested entity was not found."),
    Reason.INTERNAL: VendorError(500, "INTERNAL", "An internal error has occurred. Please retry."),
    Reason.BAD_GATEWAY: VendorError(502, "UNKNOWN", "Bad Gateway"),
    Reason.UNAVAILABLE: VendorError(503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    Reason.TIMEOUT: VendorError(504, "DEADLINE_EXCEEDED", "The request timed out. Please try again."),
    Reason.OVERLOADED: VendorError(529, "UNAVAILABLE", "Overloaded"),
}


def error_body(refusal: NeutralRefusal) -> dict[str, Any]:
    error_spec = ERRORS[refusal.reason]
    error: dict[str, Any] = {
        "code": error_spec.status,
        "message": refusal.message or error_spec.message,
        "status": error_spec.type,
    }
    details = _details(refusal)
    return {"error": error | ({"details": details} if details else {})}


def _details(refusal: NeutralRefusal) -> list[dict[str, Any]]:
    if refusal.reason is Reason.KEY_INVALID:
        return [_key_invalid()]
    named = [violation for violation in refusal.violations if violation.quota in NAMES]
    details = [_quota_failure(refusal.model, named), HELP] if named else []
    hint = _hint(refusal)
    if refusal.reason is Reason.QUOTA and hint is not None:
        details.append({"@type": f"{TYPE}RetryInfo", "retryDelay": _seconds(hint)})
    return details


def _hint(refusal: NeutralRefusal) -> float | None:
    hint = retry_hint(refusal)
    if hint is None or refusal.retry_delay is not None:
        return hint
    return min(hint, MAX_RETRY_HINT)


def _key_invalid() -> dict[str, Any]:
    return {
        "@type": f"{TYPE}ErrorInfo",
        "reason": "API_KEY_INVALID",
        "domain": "googleapis.com",
        "metadata": {"service": "generativelanguage.googleapis.com"},
    }


def _quota_failure(model: str, violations: list[Violation]) -> dict[str, Any]:
    listed = [_violation(model, violation) for violation in violations]
    return {"@type": f"{TYPE}QuotaFailure", "violations": listed}


def _violation(model: str, violation: Violation) -> dict[str, Any]:
    name = NAMES[violation.quota]
    described = {
        "quotaMetric": f"{METRIC}{name.metric}",
        "quotaId": name.id,
        "quotaDimensions": {"location": "global", "model": model},
    }
    return described | ({} if violation.limit is None else {"quotaValue": str(violation.limit)})


def _seconds(delay: float) -> str:
    # Rounded up, so that a client that waits exactly this long is not early.
    return f"{math.ceil(delay * 1000) / 1000:.3f}".rstrip("0").rstrip(".") + "s"
