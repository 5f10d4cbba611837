"""The limits of a run."""

from dataclasses import dataclass, field

from agentos.core.quota.budget import PriceList


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may use; `timeout` is per attempt, both times are in seconds, `budget` is in US dollars."""

    parallel: int = 1
    retries: int = 2
    timeout: float = 1800.0
    max_wait: float = 3600.0
    budget: float | None = None
    prices: PriceList = field(default_factory=PriceList)
