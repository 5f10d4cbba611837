"""Budget: what calls cost, whether the budget allows one more, and the other limits of a run."""

import re
from dataclasses import dataclass, field

from agentos.core.constants import MAX_PARALLEL
from agentos.core.protocol.results import Usage
from agentos.core.ratelimit.limits import CallCost

MILLION = 1_000_000
_REVISION = re.compile(r"[0-9]{3}")


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens; input read from or written to the prompt cache has separate prices.

    A missing cache price defaults to the price of input; for long retention, to that of a normal cache write.
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    cache_write_long: float | None = None

    @property
    def rates(self) -> tuple[float, float, float, float, float]:
        """All five prices: input, output, cache read, cache write, cache write with long retention."""
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        write_long = write if self.cache_write_long is None else self.cache_write_long
        return self.input, self.output, read, write, write_long

    def cost_of(self, usage: Usage) -> float:
        per_input, per_output, read, write, write_long = self.rates
        uncached = max(0, usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens)
        return (
            uncached * per_input
            + usage.output_tokens * per_output
            + usage.cache_read_tokens * read
            + (usage.cache_write_tokens - usage.cache_write_long_tokens) * write
            + usage.cache_write_long_tokens * write_long
        ) / MILLION

    def highest_cost_of(self, cost: CallCost) -> float:
        """What a call costs at most: all of its input might be written to the cache."""
        per_input, per_output, _, write, _ = self.rates
        return (cost.input_tokens * max(per_input, write) + cost.output_tokens * per_output) / MILLION


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


def over_budget_text(budget: float, spent: float) -> str:
    """Why a call was refused that would have exceeded `--budget`."""
    option = f"--budget {budget:.2f}" if budget >= 0.01 else f"--budget {budget:g}"
    if not spent:
        return f"{option} is too low for the first call"
    return f"the next call would exceed {option} ({spent:.4f} spent)"


class Budget:
    """What a run has spent, and what the calls in flight may still cost, in US dollars.

    A call is admitted only if it fits into the budget together with all calls in flight, each at its estimated
    cost. `refused`: a call was turned down since the owner last reset the flag. Without a budget everything is
    admitted; calls to models without a price cost nothing here.
    """

    def __init__(self, prices: PriceList, budget: float | None = None) -> None:
        self._prices = prices
        self.budget = budget
        self.spent = 0.0
        self.refused = False
        self._reserved: dict[str, float] = {}
        self._in_flight = 0.0  # the sum of all reservations

    def can_afford(self, model: str, cost: CallCost) -> bool:
        """Return whether one more call fits into the budget; sets `refused` if not."""
        if self.budget is None:
            return True
        fits = self.spent + self._in_flight + self._estimate(model, cost) <= self.budget
        self.refused = self.refused or not fits
        return fits

    def reserve(self, lease: str, model: str, cost: CallCost) -> None:
        if self.budget is not None:
            self._reserved[lease] = self._estimate(model, cost)
            self._in_flight += self._reserved[lease]

    def settle(self, lease: str, model: str, usage: Usage) -> float | None:
        """Replace a reservation by the real cost, and return that; None if the model has no price."""
        self._in_flight -= self._reserved.pop(lease, 0.0)
        if not self._reserved:
            self._in_flight = 0.0  # drop accumulated rounding errors
        price = self._prices.of(model)
        if price is None:
            return None
        cost = price.cost_of(usage)
        self.spent += cost
        return cost

    @property
    def is_exceeded(self) -> bool:
        return self.budget is not None and self.spent > self.budget

    def why_refused(self) -> str:
        return over_budget_text(self.budget or 0.0, self.spent)

    def _estimate(self, model: str, cost: CallCost) -> float:
        price = self._prices.of(model)
        return price.highest_cost_of(cost) if price else 0.0


def _is_version_of(model: str, name: str) -> bool:
    """A date or a revision has at least three digits; fewer belong to the name of another model."""
    return model == name or (
        model.startswith(f"{name}-") and _REVISION.match(model, len(name) + 1) is not None
    )


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may use; `timeout` is per attempt, `budget` is in US dollars, times are in seconds.

    `call_timeout` is the longest time that a call may go without receiving a token.
    """

    parallel: int = 1
    retries: int = 2
    timeout: float = 1800.0
    max_wait: float = 3600.0
    budget: float | None = None
    prices: PriceList = field(default_factory=PriceList)
    call_timeout: float = 300.0
    max_parallel: int = MAX_PARALLEL
