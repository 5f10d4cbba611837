"""Reads refusals from Gemini's error responses, by their structure and never by their text."""

from collections.abc import Mapping
from typing import Any

from agentos.core.ratelimit.limits import Dimension, LimitSeen, seconds_to_midnight_pacific
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.models.refusal_base import (
    error_object,
    gateway_refusal,
    no_access,
    protobuf_duration,
    provider_error,
    rejected_key,
    retry_after,
)

Detail = dict[str, Any]
# These concern the key or its project, whatever the request.
_KEY_REASONS = {
    "API_KEY_INVALID",
    "API_KEY_SERVICE_BLOCKED",
    "API_KEY_HTTP_REFERRER_BLOCKED",
    "API_KEY_IP_ADDRESS_BLOCKED",
    "BILLING_DISABLED",
    "CONSUMER_INVALID",
    "CONSUMER_SUSPENDED",
    "SERVICE_DISABLED",
}


def read_refusal(
    status: int, body: Any, headers: Mapping[str, str], wall: float, message: str = ""
) -> Refusal | None:
    """What an error response means for the key; None if the request itself was wrong.

    A rejected key takes precedence over a daily quota, and a daily quota over a hint when to retry.
    """
    if refusal := gateway_refusal(headers, wall):
        return refusal
    details = _objects(error_object(body, body).get("details"))
    reasons = {str(detail.get("reason")) for detail in _of_type(details, "ErrorInfo")}
    if status in (400, 403) and (rejected := reasons & _KEY_REASONS):
        return Refusal(RefusalKind.KEY_REJECTED, f"{status} {min(rejected)}")
    if status == 429:
        return _quota_refusal(details, headers, wall)
    return (
        rejected_key(status)
        or no_access(status, body)
        or provider_error(status, str(status), headers, wall, message)
    )


def _quota_refusal(details: list[Detail], headers: Mapping[str, str], wall: float) -> Refusal:
    violations = [
        violation
        for detail in _of_type(details, "QuotaFailure")
        for violation in _objects(detail.get("violations"))
    ]
    hint = _retry_hint(details, headers, wall)
    quotas = ", ".join(str(violation.get("quotaId", "")) for violation in violations)
    if any(str(violation.get("quotaValue")) == "0" for violation in violations):
        return Refusal(RefusalKind.NO_ACCESS, f"429 no access: limit 0 for {quotas}")
    if any("PerDay" in str(violation.get("quotaId", "")) for violation in violations):
        day = seconds_to_midnight_pacific(wall)
        return Refusal(RefusalKind.DAY_EXHAUSTED, f"429 {quotas}", hint, day)
    return Refusal(RefusalKind.RATE_LIMITED, f"429 {quotas}".strip(), hint, limits=_limits(violations))


def _limits(violations: list[Detail]) -> tuple[LimitSeen, ...]:
    """The limits per minute that a refusal states with their values."""
    found = []
    for violation in violations:
        value, quota = str(violation.get("quotaValue", "")), str(violation.get("quotaId", ""))
        if value.isascii() and value.isdigit() and "PerMinute" in quota:
            dimension = Dimension.INPUT if "Tokens" in quota else Dimension.REQUESTS
            found.append(LimitSeen(dimension, float(value)))
    return tuple(found)


def _retry_hint(details: list[Detail], headers: Mapping[str, str], wall: float) -> float | None:
    header = retry_after(headers, wall)
    if header is not None:
        return header
    hints = [protobuf_duration(detail.get("retryDelay")) for detail in _of_type(details, "RetryInfo")]
    return max((hint for hint in hints if hint is not None), default=None)


def _of_type(details: list[Detail], name: str) -> list[Detail]:
    return [detail for detail in details if detail.get("@type") == f"type.googleapis.com/google.rpc.{name}"]


def _objects(value: object) -> list[Detail]:
    """The JSON objects in a list; empty for anything else."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
