"""What calls cost, and whether the budget allows one more."""

from dataclasses import dataclass

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
    """By model; a dated name such as `claude-x-20250101` has the price of `claude-x`."""

    prices: tuple[tuple[str, Price], ...] = ()

    def of(self, model: str) -> Price | None:
        fitting = [(name, price) for name, price in self.prices if _is_version_of(model, name)]
        return max(fitting, key=lambda pair: len(pair[0]))[1] if fitting else None


def add_costs(first: float | None, second: float | None) -> float | None:
    """Two costs; with one that nobody knows, nobody knows their sum."""
    return None if first is None or second is None else first + second


class Budget:
    """Counts what was spent, and what the calls under way may still cost."""

    def __init__(self, prices: PriceList, budget: float | None = None) -> None:
        self._prices = prices
        self.budget = budget
        self.spent = 0.0
        self.refused = False
        self._reserved: dict[str, float] = {}

    def can_afford(self, model: str, load: CallCost) -> bool:
        """Whether one more call fits the budget; remembers if one did not."""
        if self.budget is None:
            return True
        fits = self.spent + sum(self._reserved.values()) + self._estimate(model, load) <= self.budget
        self.refused = self.refused or not fits
        return fits

    def reserve(self, lease: str, model: str, load: CallCost) -> None:
        if self.budget is not None:
            self._reserved[lease] = self._estimate(model, load)

    def settle(self, lease: str, model: str, usage: Usage) -> float | None:
        """The call is over: what it has cost, None if nobody knows."""
        self._reserved.pop(lease, None)
        price = self._prices.of(model)
        if price is None:
            return None
        cost = price.cost_of(usage.input_tokens, usage.output_tokens)
        self.spent += cost
        return cost

    def why_refused(self) -> str:
        budget = self.budget or 0.0
        said = f"--budget {budget:.2f}" if budget >= 0.01 else f"--budget {budget:g}"
        if not self.spent:
            return f"{said} is too little for a first call"
        return f"the next call would pass {said} ({self.spent:.4f} spent)"

    def _estimate(self, model: str, load: CallCost) -> float:
        price = self._prices.of(model)
        return price.cost_of(load.input_tokens, load.output_tokens) if price else 0.0


def _is_version_of(model: str, name: str) -> bool:
    return model == name or (model.startswith(f"{name}-") and model[len(name) + 1 :][:1].isdigit())
