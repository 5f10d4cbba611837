"""What a refusal of OpenAI's, or of a server like it, means, and what its headers say of limits."""

from collections.abc import Mapping
from typing import Any

from agentos.core.ratelimit.limits import Dimension, LimitSeen
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.models.retry_after import parse_duration, retry_after

_REJECTED = {401: "unauthorised", 402: "unpaid", 403: "forbidden"}
_SPENT = {"insufficient_quota", "credit_balance_exhausted"}
_SPENT_ENDINGS = ("_spend_limit_exceeded", "_usage_limit_exceeded")
_COUNTED = {"requests": Dimension.REQUESTS, "tokens": Dimension.TOKENS}


def read_refusal(code: int, body: Any, headers: Mapping[str, str], wall: float) -> Refusal | None:
    """None for a bad request of our own making."""
    name = _code(body)
    if name in _SPENT or name.endswith(_SPENT_ENDINGS):
        return Refusal(RefusalKind.KEY_REJECTED, f"{code} {name}")
    if code in _REJECTED:
        return Refusal(RefusalKind.KEY_REJECTED, f"{code} {_REJECTED[code]}")
    if code == 429:
        hint = retry_after(headers, wall)
        hint = _reset(headers) if hint is None else hint
        return Refusal(RefusalKind.RATE_LIMITED, f"429 {name}".strip(), hint, limits=limits_seen(headers))
    if code == 408 or code >= 500:
        return Refusal(RefusalKind.PROVIDER_ERROR, f"{code} {name}".strip(), retry_after(headers, wall))
    return None


def limits_seen(headers: Mapping[str, str]) -> tuple[LimitSeen, ...]:
    """The limits per minute that answers name."""
    found = []
    for name, dimension in _COUNTED.items():
        value = headers.get(f"x-ratelimit-limit-{name}", "")
        if value.isascii() and value.isdigit() and int(value):
            found.append(LimitSeen(dimension, float(value)))
    return tuple(found)


def _reset(headers: Mapping[str, str]) -> float | None:
    """When everything that is used up is full again."""
    used_up = [name for name in _COUNTED if headers.get(f"x-ratelimit-remaining-{name}") == "0"]
    resets = [parse_duration(headers.get(f"x-ratelimit-reset-{name}", "")) for name in used_up]
    return max((reset for reset in resets if reset is not None), default=None)


def _code(body: Any) -> str:
    error = body.get("error", body) if isinstance(body, dict) else None
    return str(error.get("code") or "") if isinstance(error, dict) else ""
