"""A named key: the name is printable, the secret never."""

from dataclasses import dataclass
from enum import StrEnum

from agentos.core.secrets import Secret


@dataclass(frozen=True, slots=True)
class Credential:
    """`bucket` names the quota it shares at its provider; without one it has its own."""

    name: str
    provider: str
    secret: Secret
    base_url: str | None = None
    model: str | None = None
    bucket: str = ""
    concurrency: int = 1
    enabled: bool = True

    @property
    def quota(self) -> str:
        return self.bucket or self.name


class KeyState(StrEnum):
    AVAILABLE = "available"
    RESERVED = "reserved"
    RATE_LIMITED = "rate limited"
    EXHAUSTED = "exhausted for the day"
    QUARANTINED = "quarantined"
    DISABLED = "disabled"
