"""Words a refusal and the state of the limits as Anthropic does."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from agentos.offline.vendors.neutral import Gauge, Headers, NeutralRefusal, Quota, Reason, Stamp, hint_of


@dataclass(frozen=True, slots=True)
class AnthropicWording:
    status: int
    type: str
    message: str
    code: str = ""


OVER_LIMIT = "This request would exceed your organization's rate limit."
RAMP = "This request would exceed your organization's ramp limit: usage grew too fast."
SPEND = "Your organization has reached the monthly usage threshold of its tier."
OWN_SPEND = "You have reached your specified API usage limits."
NO_CREDIT = "Your credit balance is too low to access the API."
WORDINGS = {
    Reason.QUOTA: AnthropicWording(429, "rate_limit_error", OVER_LIMIT),
    Reason.UNEXPLAINED_QUOTA: AnthropicWording(429, "rate_limit_error", OVER_LIMIT),
    Reason.RAMP: AnthropicWording(429, "rate_limit_error", RAMP, "ramp_limit_exceeded"),
    Reason.SPEND_LIMIT: AnthropicWording(429, "rate_limit_error", SPEND, "enforced_spend_limit_reached"),
    Reason.OWN_SPEND_LIMIT: AnthropicWording(400, "invalid_request_error", OWN_SPEND),
    Reason.INSUFFICIENT_QUOTA: AnthropicWording(402, "billing_error", NO_CREDIT),
    Reason.NO_CREDIT: AnthropicWording(402, "billing_error", NO_CREDIT),
    Reason.KEY_MISSING: AnthropicWording(401, "authentication_error", "x-api-key header is required"),
    Reason.KEY_INVALID: AnthropicWording(401, "authentication_error", "invalid x-api-key"),
    Reason.BAD_REQUEST: AnthropicWording(400, "invalid_request_error", "The request is not valid."),
    Reason.UNAUTHENTICATED: AnthropicWording(401, "authentication_error", "invalid x-api-key"),
    Reason.UNPAID: AnthropicWording(402, "billing_error", "There is an issue with your billing information."),
    Reason.FORBIDDEN: AnthropicWording(403, "permission_error", "Your API key may not use this resource."),
    Reason.NOT_FOUND: AnthropicWording(404, "not_found_error", "The requested resource was not found."),
    Reason.INTERNAL: AnthropicWording(500, "api_error", "Internal server error"),
    Reason.BAD_GATEWAY: AnthropicWording(502, "api_error", "Bad gateway"),
    Reason.UNAVAILABLE: AnthropicWording(503, "api_error", "Service unavailable"),
    Reason.TIMEOUT: AnthropicWording(504, "timeout_error", "The request timed out."),
    Reason.OVERLOADED: AnthropicWording(529, "overloaded_error", "Overloaded"),
}
NAMES = {
    Quota.REQUESTS: "requests",
    Quota.TOKENS: "tokens",
    Quota.INPUT_TOKENS: "input-tokens",
    Quota.OUTPUT_TOKENS: "output-tokens",
}


def status_of(refusal: NeutralRefusal) -> int:
    return WORDINGS[refusal.reason].status


def body_of(refusal: NeutralRefusal) -> dict[str, Any]:
    wording = WORDINGS[refusal.reason]
    error: dict[str, Any] = {"type": wording.type, "message": refusal.message or _message(refusal)}
    code = refusal.code or wording.code
    if code:
        error["details"] = {"error_code": code}
    return {"type": "error", "error": error, "request_id": _request_id(refusal.serial)}


def hint_headers(refusal: NeutralRefusal) -> Headers:
    hint = hint_of(refusal)
    if refusal.retry_after is not None:
        return (("retry-after", refusal.retry_after),)
    return () if hint is None else (("retry-after", str(math.ceil(hint))),)


def headers(stamp: Stamp) -> Headers:
    return (
        ("request-id", _request_id(stamp.serial)),
        *(pair for gauge in _with_total(stamp.gauges) for pair in _limit_headers(gauge)),
    )


def _message(refusal: NeutralRefusal) -> str:
    named = [f"{over.limit} {over.quota}" for over in refusal.violations if over.limit is not None]
    message = WORDINGS[refusal.reason].message
    return f"{message} Limits reached: {', '.join(named)}." if named else message


def _request_id(serial: int) -> str:
    return f"req_offline{serial:016d}"


def _with_total(gauges: tuple[Gauge, ...]) -> Iterator[Gauge]:
    """Where input and output are limited apart, the tokens in all are their sum."""
    found = {gauge.quota: gauge for gauge in gauges}
    yield from (gauge for gauge in gauges if gauge.quota in NAMES)
    given, written = found.get(Quota.INPUT_TOKENS), found.get(Quota.OUTPUT_TOKENS)
    if given and written and Quota.TOKENS not in found:
        resets_at = max(given.resets_at, written.resets_at)
        remaining = given.remaining + written.remaining
        yield Gauge(Quota.TOKENS, given.limit + written.limit, remaining, resets_at)


def _limit_headers(gauge: Gauge) -> Headers:
    name = f"anthropic-ratelimit-{NAMES[gauge.quota]}"
    return (
        (f"{name}-limit", str(gauge.limit)),
        (f"{name}-remaining", str(gauge.remaining)),
        (f"{name}-reset", _rfc3339(gauge.resets_at)),
    )


def _rfc3339(moment: float) -> str:
    # rounded up: whoever waits exactly as told must not come too early
    rounded = datetime.fromtimestamp(math.ceil(moment * 1000) / 1000, UTC)
    return rounded.isoformat(timespec="milliseconds").replace("+00:00", "Z")
