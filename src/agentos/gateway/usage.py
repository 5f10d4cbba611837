"""What each item has used, call by call."""

from dataclasses import dataclass, field
from enum import StrEnum

from agentos.core.protocol.results import Usage
from agentos.core.quota.budget import add_costs


class CallEnding(StrEnum):
    COMPLETE = "complete"
    PASSED_ON = "refusal passed on"
    NO_KEY = "no key"
    LEFT = "the client left"
    BROKEN = "broke off"


@dataclass(slots=True)
class CallRecord:
    """One call of an agent, however many keys it took; `cost` is None when nobody knows the price."""

    item: str
    provider: str
    model: str
    ending: CallEnding = CallEnding.LEFT
    status: int = 0
    key: str = ""
    seconds: float = 0.0
    waited: float = 0.0
    refused: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float | None = 0.0
    is_estimate: bool = False


@dataclass(slots=True)
class ItemUsage:
    """All calls of one item."""

    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float | None = 0.0
    refused: int = 0
    waited: float = 0.0
    estimates: int = 0

    def add(self, record: CallRecord) -> None:
        self.calls += 1
        self.usage += record.usage
        self.cost = add_costs(self.cost, record.cost)
        self.refused += record.refused
        self.waited += record.waited
        self.estimates += record.is_estimate


class UsageByItem:
    """By item, in the order of their first call."""

    def __init__(self) -> None:
        self.by_item: dict[str, ItemUsage] = {}

    def add(self, record: CallRecord) -> None:
        self.by_item.setdefault(record.item, ItemUsage()).add(record)

    def total(self) -> ItemUsage:
        found = ItemUsage()
        for account in self.by_item.values():
            found.calls += account.calls
            found.usage += account.usage
            found.cost = add_costs(found.cost, account.cost)
            found.refused += account.refused
            found.waited += account.waited
            found.estimates += account.estimates
        return found
