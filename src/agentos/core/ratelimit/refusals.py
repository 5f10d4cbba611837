"""Refusals: why a provider rejected a call, and how long it asks the caller to wait."""

import math
from dataclasses import dataclass
from enum import StrEnum

from agentos.core.ratelimit.limits import LimitSeen

DEFAULT_WAIT = 60.0  # seconds, when the provider gives no usable hint
MAX_HINT = 3600.0  # seconds


class RefusalKind(StrEnum):
    RATE_LIMITED = "rate limited"
    """The bucket is over a short-term limit: it cools down."""
    DAY_EXHAUSTED = "exhausted for the day"
    """The daily quota is used up: the bucket cools down until the provider's reset."""
    KEY_REJECTED = "key rejected"
    """The key is invalid or unpaid: it is quarantined."""
    NO_ACCESS = "no access"
    """The key may not use this model, and is not used for it again for a while; its other models are unaffected."""
    CALL_DENIED = "call denied"
    """The key may not do this one call, such as use a file of another account: nothing is learned about the key."""
    PROVIDER_ERROR = "provider error"
    """A 5xx other than 501, or a broken connection: not the key's fault, so only the circuit breaker counts it."""
    NOT_YET = "not yet"
    """A shared gateway has no free key yet and keeps the call's place: nothing is learned, the call is repeated."""
    OVER_BUDGET = "over budget"
    """The submission's budget at a shared gateway is spent: nothing is learned, the item stops."""
    CUT = "cut"
    """No token came within the call timeout. The circuit breaker counts it; two in a row count against the item."""

    @property
    def is_failure(self) -> bool:
        """Whether the provider failed to answer, instead of refusing to."""
        return self in (RefusalKind.PROVIDER_ERROR, RefusalKind.CUT)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that the provider did not serve, in the same form for every provider.

    `seconds` is the wait that the provider asks for, `day_seconds` the time until its daily reset; both are
    None if the response did not say. `limits` are the limits that the response named.
    """

    kind: RefusalKind
    reason: str
    seconds: float | None = None
    day_seconds: float | None = None
    limits: tuple[LimitSeen, ...] = ()


def clamp_hint(seconds: float | None) -> float:
    """Return a wait that is safe to follow: missing or invalid hints become the default, long ones are capped."""
    if seconds is None or math.isnan(seconds) or seconds < 0:
        return DEFAULT_WAIT
    return min(seconds, MAX_HINT)
