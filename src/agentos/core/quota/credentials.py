"""A named key: the name is printable, the secret never."""

import functools
import hashlib
from dataclasses import dataclass, field
from enum import StrEnum

from agentos.core.ratelimit.limits import Dimension, Rate
from agentos.core.text.secrets import Secret


@dataclass(frozen=True, slots=True)
class Credential:
    """`bucket` names the quota it shares at its provider; without one it has its own.

    `midnight` is when one of the days began by which its provider counts, by the host's clock.
    """

    name: str
    provider: str
    secret: Secret
    base_url: str | None = None
    model: str | None = None
    bucket: str = ""
    concurrency: int = 1
    enabled: bool = True
    rates: tuple[tuple[Dimension, Rate], ...] = ()
    midnight: float | None = field(default=None, compare=False)

    @property
    def quota(self) -> str:
        """Names the quota on this host: keys of one bucket share it, in whatever run."""
        return f"{self.provider}:{self.bucket}" if self.bucket else self.fingerprint

    @property
    def address(self) -> str:
        """Whom its calls go to: the provider, or what is behind another address, which is not shown."""
        return _address(self.provider, self.base_url) if self.base_url else self.provider

    @property
    def fingerprint(self) -> str:
        """Tells the key apart on this host; the secret cannot be had from it."""
        return _fingerprint(self.provider, self.secret)


@functools.lru_cache(maxsize=1024)
def _fingerprint(provider: str, secret: Secret) -> str:
    return hashlib.sha256(f"{provider} {secret.reveal()}".encode()).hexdigest()[:16]


@functools.lru_cache(maxsize=1024)
def _address(provider: str, base_url: str) -> str:
    return f"{provider}:{hashlib.sha256(base_url.encode()).hexdigest()[:8]}"


class KeyState(StrEnum):
    AVAILABLE = "available"
    RESERVED = "reserved"
    RATE_LIMITED = "rate limited"
    EXHAUSTED = "exhausted for the day"
    QUARANTINED = "quarantined"
    DISABLED = "disabled"
