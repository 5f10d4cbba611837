"""What a run may use."""

from dataclasses import dataclass, field

from agentos.core.quota.budget import PriceList


@dataclass(frozen=True, slots=True)
class Limits:
    """Workers, tries, seconds, dollars."""

    parallel: int = 1
    retries: int = 2
    timeout: float = 1800.0
    max_wait: float = 3600.0
    budget: float | None = None
    prices: PriceList = field(default_factory=PriceList)
