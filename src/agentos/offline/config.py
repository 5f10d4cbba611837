"""How the offline server behaves, as data."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from agentos.offline.faults.script import Fault
from agentos.offline.limits.limiter import OfflineLimits


@dataclass(frozen=True, slots=True)
class Latency:
    low: float = 0.0
    high: float = 0.0

    def of(self, seed: int, text: str) -> float:
        """The same for the same text: a run can be repeated."""
        digest = hashlib.sha256(f"{seed}:{text}".encode(errors="surrogatepass")).digest()
        return self.low + (self.high - self.low) * int.from_bytes(digest[:4]) / 2**32


class Hints(StrEnum):
    """What is told of the limits: as much as the vendor tells, or nothing but the refusal."""

    VENDOR = "vendor"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class BucketConfig:
    bucket: str
    limits: OfflineLimits


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """`buckets` names the bucket of a key; a key that is not in it has one of its own.

    `special_limits` are those of a bucket, or of a key with a bucket of its own, that differ from `limits`.
    With `per_model` each model of a bucket has the limits to itself.
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

    def account(self, key: str) -> BucketConfig:
        shared = self.buckets.get(key)
        limits = self.special_limits.get(shared or key, self.limits)
        return BucketConfig(shared or f"of {key}", limits)
