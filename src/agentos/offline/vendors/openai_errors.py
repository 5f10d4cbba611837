"""Words a refusal and the state of the limits as OpenAI does."""

import math
from dataclasses import dataclass
from typing import Any

from agentos.offline.vendors.neutral import (
    Gauge,
    Headers,
    NeutralRefusal,
    Quota,
    Reason,
    Stamp,
    Violation,
    hint_of,
)


@dataclass(frozen=True, slots=True)
class OpenAIWording:
    status: int
    type: str
    message: str
    code: str | None = None


RATE = "Rate limit reached. Please slow down."
QUOTA = "You exceeded your current quota, please check your plan and billing details."
CREDIT = "You have no credits remaining."
SPEND = "Your project has reached its enforced spend limit."
OVERLOADED = "The server is currently overloaded. Please try again later."
NO_KEY = "You didn't provide an API key. Provide it in an Authorization header, as in: Bearer YOUR_KEY."
WORDINGS = {
    Reason.QUOTA: OpenAIWording(429, "requests", RATE, "rate_limit_exceeded"),
    Reason.UNEXPLAINED_QUOTA: OpenAIWording(429, "requests", RATE, "rate_limit_exceeded"),
    Reason.RAMP: OpenAIWording(429, "rate_limit_error", "Slow down: traffic grew too fast.", "slow_down"),
    Reason.SPEND_LIMIT: OpenAIWording(429, "insufficient_quota", SPEND, "project_spend_limit_exceeded"),
    Reason.OWN_SPEND_LIMIT: OpenAIWording(
        429, "insufficient_quota", SPEND, "organization_usage_limit_exceeded"
    ),
    Reason.INSUFFICIENT_QUOTA: OpenAIWording(429, "insufficient_quota", QUOTA, "insufficient_quota"),
    Reason.NO_CREDIT: OpenAIWording(429, "insufficient_quota", CREDIT, "credit_balance_exhausted"),
    Reason.KEY_MISSING: OpenAIWording(401, "invalid_request_error", NO_KEY),
    Reason.KEY_INVALID: OpenAIWording(
        401, "invalid_request_error", "Incorrect API key provided.", "invalid_api_key"
    ),
    Reason.BAD_REQUEST: OpenAIWording(400, "invalid_request_error", "The request is not valid."),
    Reason.UNAUTHENTICATED: OpenAIWording(
        401, "invalid_request_error", "Incorrect API key provided.", "invalid_api_key"
    ),
    Reason.UNPAID: OpenAIWording(402, "billing_error", CREDIT, "billing_not_active"),
    Reason.FORBIDDEN: OpenAIWording(
        403, "invalid_request_error", "You may not use this model.", "model_not_available"
    ),
    Reason.NOT_FOUND: OpenAIWording(
        404, "invalid_request_error", "The model was not found.", "model_not_found"
    ),
    Reason.INTERNAL: OpenAIWording(500, "server_error", "The server had an error. Please try again."),
    Reason.BAD_GATEWAY: OpenAIWording(502, "server_error", "Bad gateway."),
    Reason.UNAVAILABLE: OpenAIWording(503, "service_unavailable_error", OVERLOADED, "server_is_overloaded"),
    Reason.TIMEOUT: OpenAIWording(504, "server_error", "Gateway timeout."),
    Reason.OVERLOADED: OpenAIWording(503, "service_unavailable_error", OVERLOADED, "server_is_overloaded"),
}
# a limit per day is told in the same headers, where there is none per minute
NAMES = {Quota.DAY: "requests", Quota.REQUESTS: "requests", Quota.TOKENS: "tokens"}
SHORT = {
    Quota.REQUESTS: "requests per min (RPM)",
    Quota.DAY: "requests per day (RPD)",
    Quota.TOKENS: "tokens per min (TPM)",
    Quota.INPUT_TOKENS: "input tokens per min (ITPM)",
    Quota.OUTPUT_TOKENS: "output tokens per min (OTPM)",
    Quota.CONCURRENCY: "requests at one time",
}
TOKENS = (Quota.TOKENS, Quota.INPUT_TOKENS, Quota.OUTPUT_TOKENS)


def status_of(refusal: NeutralRefusal) -> int:
    return WORDINGS[refusal.reason].status


def body_of(refusal: NeutralRefusal) -> dict[str, Any]:
    wording = WORDINGS[refusal.reason]
    over_tokens = any(over.quota in TOKENS for over in refusal.violations)
    error = {
        "message": refusal.message or _message(refusal),
        "type": "tokens" if over_tokens else wording.type,
        "param": None,
        "code": refusal.code or wording.code,
    }
    return {"error": error}


def hint_headers(refusal: NeutralRefusal) -> Headers:
    hint = hint_of(refusal)
    if refusal.retry_after is not None:
        return (("retry-after", refusal.retry_after),)
    if hint is None:
        return ()
    return (("retry-after", str(math.ceil(hint))), ("retry-after-ms", str(math.ceil(hint * 1000))))


def headers(stamp: Stamp) -> Headers:
    told = {NAMES[gauge.quota]: gauge for gauge in _by_name(stamp.gauges)}
    return (
        ("x-request-id", f"req_offline{stamp.serial:016d}"),
        *(pair for name, gauge in told.items() for pair in _limit_headers(name, gauge, stamp.now)),
    )


def duration(seconds: float) -> str:
    """As Go writes it, in whole milliseconds: 12ms, 1.5s, 6m0s, 1h0m0s."""
    # rounded up: whoever waits exactly as told must not come too early
    milliseconds = math.ceil(max(seconds, 0.0) * 1000)
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    ending = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + ending


def _message(refusal: NeutralRefusal) -> str:
    hint = hint_of(refusal)
    named = [_named(over) for over in refusal.violations if over.limit is not None]
    said = " ".join([WORDINGS[refusal.reason].message, *named])
    return said if hint is None else f"{said} Please try again in {duration(hint)}."


def _named(over: Violation) -> str:
    return f"Limit on {SHORT[over.quota]}: {over.limit}."


def _by_name(gauges: tuple[Gauge, ...]) -> list[Gauge]:
    """The day first, so that the minute replaces it."""
    told = [gauge for gauge in gauges if gauge.quota in NAMES]
    return sorted(told, key=lambda gauge: gauge.quota is not Quota.DAY)


def _limit_headers(name: str, gauge: Gauge, now: float) -> Headers:
    return (
        (f"x-ratelimit-limit-{name}", str(gauge.limit)),
        (f"x-ratelimit-remaining-{name}", str(gauge.remaining)),
        (f"x-ratelimit-reset-{name}", duration(gauge.resets_at - now)),
    )
