"""How the offline server behaves, as data."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .faults import Fault
from .limits import Limits


@dataclass(frozen=True, slots=True)
class Latency:
    low: float = 0.0
    high: float = 0.0

    def of(self, seed: int, text: str) -> float:
        """The same for the same text: a run can be repeated."""
        digest = hashlib.sha256(f"{seed}:{text}".encode(errors="surrogatepass")).digest()
        return self.low + (self.high - self.low) * int.from_bytes(digest[:4]) / 2**32


@dataclass(frozen=True, slots=True)
class Behaviour:
    """`buckets` names the bucket of a key; a key that is not in it has one of its own."""

    latency: Latency = Latency()
    review_latency: Latency | None = None
    seed: int = 0
    limits: Limits = field(default_factory=Limits)
    buckets: Mapping[str, str] = field(default_factory=dict)
    any_key: bool = False
    faults: tuple[Fault, ...] = ()
    ledger_file: Path | None = None
