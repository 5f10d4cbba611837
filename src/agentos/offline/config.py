"""Configuration of the offline server: latency, keys, limits and faults."""

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from agentos.offline.faults import Fault
from agentos.offline.rate_limits import OfflineLimits


@dataclass(frozen=True, slots=True)
class Latency:
    """A range of seconds."""

    low: float = 0.0
    high: float = 0.0

    def of(self, seed: int, text: str) -> float:
        """The latency of a prompt: always the same for the same seed and text, so that a run can be repeated."""
        digest = hashlib.sha256(f"{seed}:{text}".encode(errors="surrogatepass")).digest()
        return self.low + (self.high - self.low) * int.from_bytes(digest[:4]) / 2**32


class Hints(StrEnum):
    """How much a response says about the limits: as much as the vendor's would, or nothing but the 429."""

    VENDOR = "vendor"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class OfflineKey:
    name: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class BucketConfig:
    bucket: str
    limits: OfflineLimits


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """How the server behaves.

    buckets: the bucket of each key; a key that is not listed has one of its own
    special_limits: limits that replace `limits`, by bucket, or by key for a key with a bucket of its own
    per_model: whether each model of a bucket is limited separately
    any_key: whether unknown keys are accepted
    """

    latency: Latency = Latency()
    review_latency: Latency | None = None
    seed: int = 0
    limits: OfflineLimits = field(default_factory=OfflineLimits)
    buckets: Mapping[str, str] = field(default_factory=dict)
    special_limits: Mapping[str, OfflineLimits] = field(default_factory=dict)
    per_model: bool = False
    hints: Hints = Hints.VENDOR
    any_key: bool = False
    faults: tuple[Fault, ...] = ()
    ledger_file: Path | None = None

    def bucket_of(self, key: str) -> BucketConfig:
        shared = self.buckets.get(key)
        limits = self.special_limits.get(shared or key, self.limits)
        return BucketConfig(shared or f"of {key}", limits)


class KeyNames:
    """Names of the known keys, so that logs never contain a secret."""

    def __init__(self, keys: Iterable[OfflineKey]) -> None:
        self._names = {key.secret: key.name for key in keys}

    def knows(self, secret: str) -> bool:
        return secret in self._names

    def name(self, secret: str) -> str:
        """The key's name; for an unknown key, a fingerprint of its secret."""
        if not secret:
            return "none"
        return self._names.get(secret) or f"unknown-{hashlib.sha256(secret.encode()).hexdigest()[:8]}"


def make_keys(number: int) -> tuple[OfflineKey, ...]:
    return tuple(
        OfflineKey(f"key-{n}", f"offline-key-{n}-{secrets.token_hex(4)}") for n in range(1, number + 1)
    )


def parse_key(line: str) -> OfflineKey:
    name, equals, secret = line.strip().partition("=")
    if not (name and equals and secret):
        # The line is not quoted: it may be a secret.
        raise ValueError("invalid key: expected NAME=SECRET")
    return OfflineKey(name, secret)
