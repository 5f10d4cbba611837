"""OpenAI's error responses and rate-limit headers."""

import math
from typing import Any

from agentos.offline.vendors.neutral import (
    Gauge,
    Headers,
    NeutralRefusal,
    Quota,
    Reason,
    Stamp,
    VendorError,
    retry_hint,
)

RATE = "Rate limit reached. Please slow down."
QUOTA = "You exceeded your current quota, please check your plan and billing details."
CREDIT = "You have no credits remaining."
SPEND = "Your project has reached its enforced spend limit."
OVERLOADED = "The server is currently overloaded. Please try again later."
NO_KEY = "You didn't provide an API key. Provide it in an Authorization header, as in: Bearer YOUR_KEY."
ERRORS = {
    Reason.QUOTA: VendorError(429, "requests", RATE, "rate_limit_exceeded"),
    Reason.UNEXPLAINED_QUOTA: VendorError(429, "requests", RATE, "rate_limit_exceeded"),
    Reason.RAMP: VendorError(429, "rate_limit_error", "Slow down: traffic grew too fast.", "slow_down"),
    Reason.SPEND_LIMIT: VendorError(429, "insufficient_quota", SPEND, "project_spend_limit_exceeded"),
    Reason.OWN_SPEND_LIMIT: VendorError(
        429, "insufficient_quota", SPEND, "organization_usage_limit_exceeded"
    ),
    Reason.INSUFFICIENT_QUOTA: VendorError(429, "insufficient_quota", QUOTA, "insufficient_quota"),
    Reason.NO_CREDIT: VendorError(429, "insufficient_quota", CREDIT, "credit_balance_exhausted"),
    Reason.KEY_MISSING: VendorError(401, "invalid_request_error", NO_KEY),
    Reason.KEY_INVALID: VendorError(
        401, "invalid_request_error", "Incorrect API key provided.", "invalid_api_key"
    ),
    Reason.BAD_REQUEST: VendorError(400, "invalid_request_error", "The request is not valid."),
    Reason.UNAUTHENTICATED: VendorError(
        401, "invalid_request_error", "Incorrect API key provided.", "invalid_api_key"
    ),
    Reason.UNPAID: VendorError(402, "billing_error", CREDIT, "billing_not_active"),
    Reason.FORBIDDEN: VendorError(
        403, "invalid_request_error", "You may not use this model.", "model_not_available"
    ),
    Reason.NOT_FOUND: VendorError(
        404, "invalid_request_error", "The model was not found.", "model_not_found"
    ),
    Reason.INTERNAL: VendorError(500, "server_error", "The server had an error. Please try again."),
    Reason.BAD_GATEWAY: VendorError(502, "server_error", "Bad gateway."),
    Reason.UNAVAILABLE: VendorError(503, "service_unavailable_error", OVERLOADED, "server_is_overloaded"),
    Reason.TIMEOUT: VendorError(504, "server_error", "Gateway timeout."),
    Reason.OVERLOADED: VendorError(503, "service_unavailable_error", OVERLOADED, "server_is_overloaded"),
}
# A daily limit uses the same headers if there is no limit per minute.
NAMES = {Quota.DAY: "requests", Quota.REQUESTS: "requests", Quota.TOKENS: "tokens"}
QUOTA_TEXTS = {
    Quota.REQUESTS: "requests per min (RPM)",
    Quota.DAY: "requests per day (RPD)",
    Quota.TOKENS: "tokens per min (TPM)",
    Quota.INPUT_TOKENS: "input tokens per min (ITPM)",
    Quota.OUTPUT_TOKENS: "output tokens per min (OTPM)",
    Quota.CONCURRENCY: "requests at one time",
}
TOKENS = (Quota.TOKENS, Quota.INPUT_TOKENS, Quota.OUTPUT_TOKENS)


def error_body(refusal: NeutralRefusal) -> dict[str, Any]:
    error_spec = ERRORS[refusal.reason]
    over_tokens = any(violation.quota in TOKENS for violation in refusal.violations)
    error = {
        "message": refusal.message or _message(refusal),
        "type": "tokens" if over_tokens else error_spec.type,
        "param": None,
        "code": refusal.code or error_spec.code,
    }
    return {"error": error}


def retry_headers(refusal: NeutralRefusal) -> Headers:
    hint = retry_hint(refusal)
    if refusal.retry_after is not None:
        return (("retry-after", refusal.retry_after),)
    if hint is None:
        return ()
    return (("retry-after", str(math.ceil(hint))), ("retry-after-ms", str(math.ceil(hint * 1000))))


def response_headers(stamp: Stamp) -> Headers:
    # The daily limit first, so that the limit per minute replaces it.
    daily_first = sorted(stamp.gauges, key=lambda gauge: gauge.quota is not Quota.DAY)
    gauges = {NAMES[gauge.quota]: gauge for gauge in daily_first if gauge.quota in NAMES}
    return (
        ("x-request-id", f"req_offline{stamp.serial:016d}"),
        *(pair for name, gauge in gauges.items() for pair in _limit_headers(name, gauge, stamp.now)),
    )


def go_duration(seconds: float) -> str:
    """A duration in Go's notation, in whole milliseconds: 12ms, 1.5s, 6m0s, 1h0m0s."""
    # Rounded up, so that a client that waits exactly this long is not early.
    milliseconds = math.ceil(max(seconds, 0.0) * 1000)
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    seconds_text = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + seconds_text


def _message(refusal: NeutralRefusal) -> str:
    hint = retry_hint(refusal)
    limits = [
        f"Limit on {QUOTA_TEXTS[violation.quota]}: {violation.limit}."
        for violation in refusal.violations
        if violation.limit is not None
    ]
    message = " ".join([ERRORS[refusal.reason].message, *limits])
    return message if hint is None else f"{message} Please try again in {go_duration(hint)}."


def _limit_headers(name: str, gauge: Gauge, now: float) -> Headers:
    return (
        (f"x-ratelimit-limit-{name}", str(gauge.limit)),
        (f"x-ratelimit-remaining-{name}", str(gauge.remaining)),
        (f"x-ratelimit-reset-{name}", go_duration(gauge.resets_at - now)),
    )
