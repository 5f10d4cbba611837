"""What a refusal of Gemini's means, read from its structure, never from its prose."""

from collections.abc import Iterator, Mapping
from typing import Any

from agentos.core.ratelimit.limits import Dimension, LimitSeen
from agentos.core.ratelimit.quota_day import seconds_to_midnight_pacific
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.models.retry_after import protobuf_duration, retry_after

_REJECTED = {401: "unauthorised", 402: "unpaid", 403: "forbidden"}


def read_refusal(code: int, body: Any, headers: Mapping[str, str], wall: float) -> Refusal | None:
    """None for a bad request of our own making. Billing and keys first, then the day, then the hint."""
    details = list(_details(body))
    if code in _REJECTED:
        return Refusal(RefusalKind.KEY_REJECTED, f"{code} {_REJECTED[code]}")
    if code == 400 and any(_reason(detail) == "API_KEY_INVALID" for detail in details):
        return Refusal(RefusalKind.KEY_REJECTED, "400 API_KEY_INVALID")
    if code == 429:
        return _too_many(details, headers, wall)
    if code == 408 or code >= 500:
        return Refusal(RefusalKind.PROVIDER_ERROR, str(code), seconds=retry_after(headers, wall))
    return None


def _too_many(details: list[dict[str, Any]], headers: Mapping[str, str], wall: float) -> Refusal:
    violations = [violation for detail in details for violation in _violations(detail)]
    hint = _hint(details, headers, wall)
    quotas = ", ".join(str(violation.get("quotaId", "")) for violation in violations)
    if any(str(violation.get("quotaValue")) == "0" for violation in violations):
        return Refusal(RefusalKind.KEY_REJECTED, f"429 no access: limit 0 for {quotas}")
    if any("PerDay" in str(violation.get("quotaId", "")) for violation in violations):
        day = seconds_to_midnight_pacific(wall)
        return Refusal(RefusalKind.DAY_EXHAUSTED, f"429 {quotas}", hint, day)
    return Refusal(RefusalKind.RATE_LIMITED, f"429 {quotas}".strip(), hint, limits=_named(violations))


def _named(violations: list[dict[str, Any]]) -> tuple[LimitSeen, ...]:
    """The limits that a refusal names with their values."""
    found = []
    for violation in violations:
        value, quota = str(violation.get("quotaValue", "")), str(violation.get("quotaId", ""))
        if value.isascii() and value.isdigit() and "PerMinute" in quota:
            dimension = Dimension.INPUT if "Tokens" in quota else Dimension.REQUESTS
            found.append(LimitSeen(dimension, float(value)))
    return tuple(found)


def _hint(details: list[dict[str, Any]], headers: Mapping[str, str], wall: float) -> float | None:
    header = retry_after(headers, wall)
    if header is not None:
        return header
    hints = [protobuf_duration(detail.get("retryDelay")) for detail in details if _is(detail, "RetryInfo")]
    return max((hint for hint in hints if hint is not None), default=None)


def _violations(detail: dict[str, Any]) -> list[dict[str, Any]]:
    found = detail.get("violations") if _is(detail, "QuotaFailure") else None
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def _reason(detail: dict[str, Any]) -> object:
    return detail.get("reason") if _is(detail, "ErrorInfo") else None


def _is(detail: dict[str, Any], kind: str) -> bool:
    return detail.get("@type") == f"type.googleapis.com/google.rpc.{kind}"


def _details(body: Any) -> Iterator[dict[str, Any]]:
    error = body.get("error", body) if isinstance(body, dict) else None
    found = error.get("details") if isinstance(error, dict) else None
    for detail in found if isinstance(found, list) else []:
        if isinstance(detail, dict):
            yield detail
