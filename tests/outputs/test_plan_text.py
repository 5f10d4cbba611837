"""The lines about items that a plan leaves out."""

from agentos.core.planning.items import Candidate, Item, ItemStatus
from agentos.outputs.plan_text import changed_lines


def test_an_item_is_redone_by_its_number_or_by_its_name() -> None:
    items = [Item("LLD-7", "lld", 7, "t", "issues/7.md"), Item("TOPICS-ice", "topics", 9481, "t", "ice.md")]
    lines = changed_lines([Candidate(item, ItemStatus.APPROVED) for item in items])
    assert [line.rpartition("--fresh ")[2] for line in lines] == ["7", "ice"]
