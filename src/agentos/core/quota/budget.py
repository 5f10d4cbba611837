"""Budget: what calls cost, whether the budget allows one more, and the other limits of a run."""

from dataclasses import dataclass, field

from agentos.core.constants import MAX_PARALLEL
from agentos.core.protocol.results import Usage
from agentos.core.ratelimit.limits import CallCost

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float

    def cost_of(self, input_tokens: int, output_tokens: int) -> float:
        return (input_tokens * self.input + output_tokens * self.output) / MILLION


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices by model; a dated name such as `claude-x-20250101` has the price of `claude-x`."""

    prices: tuple[tuple[str, Price], ...] = ()

    def of(self, model: str) -> Price | None:
        matches = [(name, price) for name, price in self.prices if _is_version_of(model, name)]
        return max(matches, key=lambda match: len(match[0]))[1] if matches else None


def add_costs(first: float | None, second: float | None) -> float | None:
    """Add two costs; if one is unknown (None), so is the sum."""
    return None if first is None or second is None else first + second


class Budget:
    """What a run has spent, and what the calls in flight may still cost, in US dollars.

    A call is admitted only if it fits into the budget together with all calls in flight, each at its estimated
    cost. `refused` tells whether the last `can_afford` round turned a call down; the owner resets it. Without
    a budget everything is admitted; calls to models without a price cost nothing here.
    """

    def __init__(self, prices: PriceList, budget: float | None = None) -> None:
        self._prices = prices
        self.budget = budget
        self.spent = 0.0
        self.refused = False
        self._reserved: dict[str, float] = {}

    def can_afford(self, model: str, cost: CallCost) -> bool:
        """Return whether one more call fits into the budget; sets `refused` if not."""
        if self.budget is None:
            return True
        fits = self.spent + sum(self._reserved.values()) + self._estimate(model, cost) <= self.budget
        self.refused = self.refused or not fits
        return fits

    def reserve(self, lease: str, model: str, cost: CallCost) -> None:
        if self.budget is not None:
            self._reserved[lease] = self._estimate(model, cost)

    def settle(self, lease: str, model: str, usage: Usage) -> float | None:
        """Replace a reservation by the real cost, and return that; None if the model has no price."""
        self._reserved.pop(lease, None)
        price = self._prices.of(model)
        if price is None:
            return None
        cost = price.cost_of(usage.input_tokens, usage.output_tokens)
        self.spent += cost
        return cost

    def why_refused(self) -> str:
        budget = self.budget or 0.0
        option = f"--budget {budget:.2f}" if budget >= 0.01 else f"--budget {budget:g}"
        if not self.spent:
            return f"{option} is too low for the first call"
        return f"the next call would exceed {option} ({self.spent:.4f} spent)"

    def _estimate(self, model: str, cost: CallCost) -> float:
        price = self._prices.of(model)
        return price.cost_of(cost.input_tokens, cost.output_tokens) if price else 0.0


def _is_version_of(model: str, name: str) -> bool:
    return model == name or (model.startswith(f"{name}-") and model[len(name) + 1 :][:1].isdigit())


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may use; `timeout` is per attempt, `budget` is in US dollars, times are in seconds.

    `call_timeout` is the longest time that a call may stay without a token.
    """

    parallel: int = 1
    retries: int = 2
    timeout: float = 1800.0
    max_wait: float = 3600.0
    budget: float | None = None
    prices: PriceList = field(default_factory=PriceList)
    call_timeout: float = 300.0
    max_parallel: int = MAX_PARALLEL
