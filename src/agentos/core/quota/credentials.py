"""Credentials: named API keys with their limits."""

import functools
import hashlib
from dataclasses import dataclass, field
from enum import StrEnum

from agentos.core.ratelimit.limits import Dimension, Rate
from agentos.core.text.secrets import Secret

# Longer beginnings first: other keys also begin like an OpenAI key. OpenRouter is none of our providers.
_BEGINNINGS = {
    "sk-ant-": "anthropic",
    "sk-or-": None,
    "sk-": "openai",
    "AIza": "gemini",
    "AQ.": "gemini",
}


@dataclass(frozen=True, slots=True)
class Credential:
    """One API key: its name may be printed, its secret never.

    `bucket` names the quota that it shares with other keys at the provider; empty means a quota of its own.
    `midnight` is the start of any quota day of the provider, by the host's clock; None means that daily
    limits cover the last 24 hours.
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
    call_timeout: float | None = None  # seconds without a token; None: as in the settings
    midnight: float | None = field(default=None, compare=False)

    @property
    def quota(self) -> str:
        """Identifies the quota on this host; keys of one bucket share it across all runs."""
        return f"{self.provider}:{self.bucket}" if self.bucket else self.fingerprint

    @property
    def address(self) -> str:
        """Identifies where calls go: the provider, plus a hash of the base URL if it has its own."""
        return _address(self.provider, self.base_url) if self.base_url else self.provider

    @property
    def fingerprint(self) -> str:
        """Identifies the key, the provider and the secret, on this host without revealing the secret."""
        return _fingerprint(self.provider, self.secret)


@functools.lru_cache(maxsize=1 << 16)
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
    NO_ACCESS = "not allowed"
    QUARANTINED = "quarantined"
    DISABLED = "disabled"


def provider_of(key: str) -> str | None:
    """The provider whose keys look like this one; None if it could be any provider's."""
    return next((provider for beginning, provider in _BEGINNINGS.items() if key.startswith(beginning)), None)
