"""Words a refusal as Google does."""

import math
from dataclasses import dataclass
from typing import Any

from agentos.offline.vendors.neutral import NeutralRefusal, Quota, Reason, Violation, hint_of

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
# a day's true end is kept back, as Google does
LONGEST_HINT = 60.0


@dataclass(frozen=True, slots=True)
class Name:
    metric: str
    id: str


# limits that Google does not have are not named
NAMES = {
    Quota.REQUESTS: Name("requests", "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"),
    Quota.INPUT_TOKENS: Name("input_token_count", "GenerateContentInputTokensPerModelPerMinute-FreeTier"),
    Quota.DAY: Name("requests", "GenerateRequestsPerDayPerProjectPerModel-FreeTier"),
}


@dataclass(frozen=True, slots=True)
class GeminiWording:
    code: int
    status: str
    message: str


OVER_QUOTA = "You exceeded your current quota, please check your plan and billing details."
EXHAUSTED = "Resource has been exhausted (e.g. check quota)."
EMPTY_BALANCE = "The prepaid balance of this account is empty."
WORDINGS = {
    Reason.QUOTA: GeminiWording(429, "RESOURCE_EXHAUSTED", OVER_QUOTA),
    Reason.UNEXPLAINED_QUOTA: GeminiWording(429, "RESOURCE_EXHAUSTED", EXHAUSTED),
    Reason.RAMP: GeminiWording(429, "RESOURCE_EXHAUSTED", EXHAUSTED),
    Reason.SPEND_LIMIT: GeminiWording(429, "RESOURCE_EXHAUSTED", "The spend cap of this project is reached."),
    Reason.OWN_SPEND_LIMIT: GeminiWording(
        429, "RESOURCE_EXHAUSTED", "The spend cap of this project is reached."
    ),
    Reason.INSUFFICIENT_QUOTA: GeminiWording(429, "RESOURCE_EXHAUSTED", OVER_QUOTA),
    Reason.NO_CREDIT: GeminiWording(402, "FAILED_PRECONDITION", EMPTY_BALANCE),
    Reason.KEY_MISSING: GeminiWording(
        403,
        "PERMISSION_DENIED",
        "Method doesn't allow unregistered callers (callers without established identity). "
        "Please use API Key or other form of API consumer identity to call this API.",
    ),
    Reason.KEY_INVALID: GeminiWording(
        400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."
    ),
    Reason.BAD_REQUEST: GeminiWording(400, "INVALID_ARGUMENT", "Request contains an invalid argument."),
    Reason.UNAUTHENTICATED: GeminiWording(
        401, "UNAUTHENTICATED", "Request had invalid authentication credentials."
    ),
    Reason.UNPAID: GeminiWording(402, "FAILED_PRECONDITION", EMPTY_BALANCE),
    Reason.FORBIDDEN: GeminiWording(403, "PERMISSION_DENIED", "The caller does not have permission"),
    Reason.NOT_FOUND: GeminiWording(404, "NOT_FOUND", "Requested entity was not found."),
    Reason.INTERNAL: GeminiWording(500, "INTERNAL", "An internal error has occurred. Please retry."),
    Reason.BAD_GATEWAY: GeminiWording(502, "UNKNOWN", "Bad Gateway"),
    Reason.UNAVAILABLE: GeminiWording(503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    Reason.TIMEOUT: GeminiWording(504, "DEADLINE_EXCEEDED", "The request timed out. Please try again."),
    Reason.OVERLOADED: GeminiWording(529, "UNAVAILABLE", "Overloaded"),
}


def status_of(refusal: NeutralRefusal) -> int:
    return WORDINGS[refusal.reason].code


def body_of(refusal: NeutralRefusal) -> dict[str, Any]:
    wording = WORDINGS[refusal.reason]
    error: dict[str, Any] = {
        "code": wording.code,
        "message": refusal.message or wording.message,
        "status": wording.status,
    }
    details = _details(refusal)
    return {"error": error | ({"details": details} if details else {})}


def _details(refusal: NeutralRefusal) -> list[dict[str, Any]]:
    if refusal.reason is Reason.KEY_INVALID:
        return [_key_invalid()]
    named = [over for over in refusal.violations if over.quota in NAMES]
    found = [_quota_failure(refusal.model, named), HELP] if named else []
    hint = _hint(refusal)
    if refusal.reason is Reason.QUOTA and hint is not None:
        found.append({"@type": f"{TYPE}RetryInfo", "retryDelay": _seconds(hint)})
    return found


def _hint(refusal: NeutralRefusal) -> float | None:
    hint = hint_of(refusal)
    if hint is None or refusal.retry_delay is not None:
        return hint
    return min(hint, LONGEST_HINT)


def _key_invalid() -> dict[str, Any]:
    return {
        "@type": f"{TYPE}ErrorInfo",
        "reason": "API_KEY_INVALID",
        "domain": "googleapis.com",
        "metadata": {"service": "generativelanguage.googleapis.com"},
    }


def _quota_failure(model: str, over: list[Violation]) -> dict[str, Any]:
    return {"@type": f"{TYPE}QuotaFailure", "violations": [_violation(model, one) for one in over]}


def _violation(model: str, over: Violation) -> dict[str, Any]:
    name = NAMES[over.quota]
    named = {
        "quotaMetric": f"{METRIC}{name.metric}",
        "quotaId": name.id,
        "quotaDimensions": {"location": "global", "model": model},
    }
    return named | ({} if over.limit is None else {"quotaValue": str(over.limit)})


def _seconds(delay: float) -> str:
    # rounded up: whoever waits exactly as told must not come too early
    return f"{math.ceil(delay * 1000) / 1000:.3f}".rstrip("0").rstrip(".") + "s"
