"""Anthropic's error responses and rate-limit headers."""

import math
from collections.abc import Iterator
from datetime import UTC, datetime
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

OVER_LIMIT = "This request would exceed your organization's rate limit."
RAMP = "This request would exceed your organization's ramp limit: usage grew too fast."
SPEND = "Your organization has reached the monthly usage threshold of its tier."
OWN_SPEND = "You have reached your specified API usage limits."
NO_CREDIT = "Your credit balance is too low to access the API."
ERRORS = {
    Reason.QUOTA: VendorError(429, "rate_limit_error", OVER_LIMIT),
    Reason.UNEXPLAINED_QUOTA: VendorError(429, "rate_limit_error", OVER_LIMIT),
    Reason.RAMP: VendorError(429, "rate_limit_error", RAMP, "ramp_limit_exceeded"),
    Reason.SPEND_LIMIT: VendorError(429, "rate_limit_error", SPEND, "enforced_spend_limit_reached"),
    Reason.OWN_SPEND_LIMIT: VendorError(400, "invalid_request_error", OWN_SPEND),
    Reason.INSUFFICIENT_QUOTA: VendorError(402, "billing_error", NO_CREDIT),
    Reason.NO_CREDIT: VendorError(402, "billing_error", NO_CREDIT),
    Reason.KEY_MISSING: VendorError(401, "authentication_error", "x-api-key header is required"),
    Reason.KEY_INVALID: VendorError(401, "authentication_error", "invalid x-api-key"),
    Reason.BAD_REQUEST: VendorError(400, "invalid_request_error", "The request is not valid."),
    Reason.UNAUTHENTICATED: VendorError(401, "authentication_error", "invalid x-api-key"),
    Reason.UNPAID: VendorError(402, "billing_error", "There is an issue with your billing information."),
    Reason.FORBIDDEN: VendorError(403, "permission_error", "Your API key may not use this resource."),
    Reason.NOT_FOUND: VendorError(404, "not_found_error", "The requested resource was not found."),
    Reason.INTERNAL: VendorError(500, "api_error", "Internal server error"),
    Reason.BAD_GATEWAY: VendorError(502, "api_error", "Bad gateway"),
    Reason.UNAVAILABLE: VendorError(503, "api_error", "Service unavailable"),
    Reason.TIMEOUT: VendorError(504, "timeout_error", "The request timed out."),
    Reason.OVERLOADED: VendorError(529, "overloaded_error", "Overloaded"),
}
NAMES = {
    Quota.REQUESTS: "requests",
    Quota.TOKENS: "tokens",
    Quota.INPUT_TOKENS: "input-tokens",
    Quota.OUTPUT_TOKENS: "output-tokens",
}


def error_body(refusal: NeutralRefusal) -> dict[str, Any]:
    error_spec = ERRORS[refusal.reason]
    error: dict[str, Any] = {"type": error_spec.type, "message": refusal.message or _message(refusal)}
    code = refusal.code or error_spec.code
    if code:
        error["details"] = {"error_code": code}
    return {"type": "error", "error": error, "request_id": _request_id(refusal.serial)}


def retry_headers(refusal: NeutralRefusal) -> Headers:
    hint = retry_hint(refusal)
    if refusal.retry_after is not None:
        return (("retry-after", refusal.retry_after),)
    return () if hint is None else (("retry-after", str(math.ceil(hint))),)


def response_headers(stamp: Stamp) -> Headers:
    return (
        ("request-id", _request_id(stamp.serial)),
        *(pair for gauge in _with_total(stamp.gauges) for pair in _limit_headers(gauge)),
    )


def _message(refusal: NeutralRefusal) -> str:
    limits = [f"{v.limit} {v.quota}" for v in refusal.violations if v.limit is not None]
    message = ERRORS[refusal.reason].message
    return f"{message} Limits reached: {', '.join(limits)}." if limits else message


def _request_id(serial: int) -> str:
    return f"req_offline{serial:016d}"


def _with_total(gauges: tuple[Gauge, ...]) -> Iterator[Gauge]:
    """Adds the sum of input and output tokens where these are limited separately."""
    by_quota = {gauge.quota: gauge for gauge in gauges}
    yield from (gauge for gauge in gauges if gauge.quota in NAMES)
    inputs, outputs = by_quota.get(Quota.INPUT_TOKENS), by_quota.get(Quota.OUTPUT_TOKENS)
    if inputs and outputs and Quota.TOKENS not in by_quota:
        resets_at = max(inputs.resets_at, outputs.resets_at)
        remaining = inputs.remaining + outputs.remaining
        yield Gauge(Quota.TOKENS, inputs.limit + outputs.limit, remaining, resets_at)


def _limit_headers(gauge: Gauge) -> Headers:
    name = f"anthropic-ratelimit-{NAMES[gauge.quota]}"
    return (
        (f"{name}-limit", str(gauge.limit)),
        (f"{name}-remaining", str(gauge.remaining)),
        (f"{name}-reset", _rfc3339(gauge.resets_at)),
    )


def _rfc3339(moment: float) -> str:
    # Rounded up, so that a client that waits exactly this long is not early.
    rounded = datetime.fromtimestamp(math.ceil(moment * 1000) / 1000, UTC)
    return rounded.isoformat(timespec="milliseconds").replace("+00:00", "Z")
