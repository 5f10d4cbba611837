"""Usage of the gateway: one record per call, summed up per item."""

from dataclasses import dataclass, field
from enum import StrEnum

from agentos.core.protocol.results import Usage
from agentos.core.quota.budget import add_costs


class CallEnding(StrEnum):
    COMPLETE = "complete"
    PASSED_ON = "error passed on"
    NO_KEY = "no key"
    LEFT = "client disconnected"
    BROKEN = "connection lost"


@dataclass(slots=True)
class CallRecord:
    """One call of an agent, however many keys it took; `cost` is None if the price is unknown."""

    item: str
    provider: str
    model: str
    ending: CallEnding = CallEnding.LEFT
    status: int = 0
    key: str = ""
    seconds: float = 0.0
    waited: float = 0.0  # seconds
    refused: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float | None = 0.0
    is_estimate: bool = False


@dataclass(slots=True)
class ItemUsage:
    """Sum of the calls of one item, or of all of them."""

    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float | None = 0.0
    refused: int = 0
    waited: float = 0.0  # seconds
    estimates: int = 0

    def add_call(self, record: CallRecord) -> None:
        self.add(ItemUsage(1, record.usage, record.cost, record.refused, record.waited, record.is_estimate))

    def add(self, other: "ItemUsage") -> None:
        self.calls += other.calls
        self.usage += other.usage
        self.cost = add_costs(self.cost, other.cost)
        self.refused += other.refused
        self.waited += other.waited
        self.estimates += other.estimates


class UsageByItem:
    """Usage per item, in the order of their first calls."""

    def __init__(self) -> None:
        self.by_item: dict[str, ItemUsage] = {}

    def add(self, record: CallRecord) -> None:
        self.by_item.setdefault(record.item, ItemUsage()).add_call(record)

    def total(self) -> ItemUsage:
        total = ItemUsage()
        for usage in self.by_item.values():
            total.add(usage)
        return total
