"""What a provider's refusal means for the key that was used."""

import math
from dataclasses import dataclass
from enum import StrEnum

from agentos.core.ratelimit.limits import LimitSeen

DEFAULT_REST = 60.0
LONGEST_HINT = 3600.0


class RefusalKind(StrEnum):
    RATE_LIMITED = "rate limited"
    DAY_EXHAUSTED = "exhausted for the day"
    KEY_REJECTED = "key rejected"
    PROVIDER_ERROR = "provider trouble"


@dataclass(frozen=True, slots=True)
class Refusal:
    """`seconds` is how long the provider asks to wait; `day_seconds` until its daily reset."""

    kind: RefusalKind
    reason: str
    seconds: float | None = None
    day_seconds: float | None = None
    limits: tuple[LimitSeen, ...] = ()


def clamp_hint(seconds: float | None) -> float:
    """A wait that can be obeyed: absurd, negative or missing hints become sane ones."""
    if seconds is None or math.isnan(seconds) or seconds < 0:
        return DEFAULT_REST
    return min(seconds, LONGEST_HINT)
