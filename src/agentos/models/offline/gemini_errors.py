"""Words a refusal as Google does."""

import math
from dataclasses import dataclass
from typing import Any

from .talk import Reason, Refusal

TYPE = "type.googleapis.com/google.rpc."
METRIC = "generativelanguage.googleapis.com/generate_content_free_tier_requests"
LIMITS_PAGE = "https://ai.google.dev/gemini-api/docs/rate-limits"
PER_MINUTE = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"
PER_DAY = "GenerateRequestsPerDayPerProjectPerModel-FreeTier"
QUOTA_IDS = {
    Reason.MINUTE_QUOTA: (PER_MINUTE,),
    Reason.DAY_QUOTA: (PER_DAY,),
    Reason.BOTH_QUOTAS: (PER_MINUTE, PER_DAY),
}


@dataclass(frozen=True, slots=True)
class Wording:
    code: int
    status: str
    message: str


OVER_QUOTA = "You exceeded your current quota, please check your plan and billing details."
WORDINGS = {
    Reason.MINUTE_QUOTA: Wording(429, "RESOURCE_EXHAUSTED", OVER_QUOTA),
    Reason.DAY_QUOTA: Wording(429, "RESOURCE_EXHAUSTED", OVER_QUOTA),
    Reason.BOTH_QUOTAS: Wording(429, "RESOURCE_EXHAUSTED", OVER_QUOTA),
    Reason.UNEXPLAINED_QUOTA: Wording(
        429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."
    ),
    Reason.KEY_MISSING: Wording(
        403,
        "PERMISSION_DENIED",
        "Method doesn't allow unregistered callers (callers without established identity). "
        "Please use API Key or other form of API consumer identity to call this API.",
    ),
    Reason.KEY_INVALID: Wording(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
    Reason.BAD_REQUEST: Wording(400, "INVALID_ARGUMENT", "Request contains an invalid argument."),
    Reason.UNAUTHENTICATED: Wording(
        401, "UNAUTHENTICATED", "Request had invalid authentication credentials."
    ),
    Reason.UNPAID: Wording(402, "FAILED_PRECONDITION", "The prepaid balance of this account is empty."),
    Reason.FORBIDDEN: Wording(403, "PERMISSION_DENIED", "The caller does not have permission"),
    Reason.NOT_FOUND: Wording(404, "NOT_FOUND", "Requested entity was not found."),
    Reason.INTERNAL: Wording(500, "INTERNAL", "An internal error has occurred. Please retry."),
    Reason.BAD_GATEWAY: Wording(502, "UNKNOWN", "Bad Gateway"),
    Reason.UNAVAILABLE: Wording(503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    Reason.TIMEOUT: Wording(504, "DEADLINE_EXCEEDED", "The request timed out. Please try again."),
    Reason.OVERLOADED: Wording(529, "UNAVAILABLE", "Overloaded"),
}


def status_of(refusal: Refusal) -> int:
    return WORDINGS[refusal.reason].code


def body_of(refusal: Refusal) -> dict[str, Any]:
    wording = WORDINGS[refusal.reason]
    error: dict[str, Any] = {
        "code": wording.code,
        "message": refusal.message or wording.message,
        "status": wording.status,
    }
    details = _details(refusal)
    return {"error": error | ({"details": details} if details else {})}


def _details(refusal: Refusal) -> list[dict[str, Any]]:
    if refusal.reason is Reason.KEY_INVALID:
        return [_key_invalid()]
    if refusal.reason not in QUOTA_IDS:
        return []
    help_links = [{"description": "Learn more about Gemini API quotas", "url": LIMITS_PAGE}]
    found = [_quota_failure(refusal), {"@type": f"{TYPE}Help", "links": help_links}]
    if refusal.retry_delay is not None:
        found.append({"@type": f"{TYPE}RetryInfo", "retryDelay": _seconds(refusal.retry_delay)})
    return found


def _key_invalid() -> dict[str, Any]:
    return {
        "@type": f"{TYPE}ErrorInfo",
        "reason": "API_KEY_INVALID",
        "domain": "googleapis.com",
        "metadata": {"service": "generativelanguage.googleapis.com"},
    }


def _quota_failure(refusal: Refusal) -> dict[str, Any]:
    shared = {
        "quotaMetric": METRIC,
        "quotaDimensions": {"location": "global", "model": refusal.model},
    }
    value = {} if refusal.limit is None else {"quotaValue": str(refusal.limit)}
    violations = [shared | {"quotaId": name} | value for name in QUOTA_IDS[refusal.reason]]
    return {"@type": f"{TYPE}QuotaFailure", "violations": violations}


def _seconds(delay: float) -> str:
    # rounded up: whoever waits exactly as told must not come too early
    return f"{math.ceil(delay * 1000) / 1000:.3f}".rstrip("0").rstrip(".") + "s"
