"""Selects and orders the items to list. In a long list, items that need no attention are only counted, and failures
come last."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from agentos.core.protocol.results import Ending, Verdict
from agentos.core.run_state.run_stats import ItemStats
from agentos.core.text.line_assembler import one_line
from agentos.outputs.format import count, seen_from

MANY = 20
MAX_REASON = 300  # characters
_LAST = (Verdict.NEEDS_REVISION.value, Ending.FAILED.value)


@dataclass(frozen=True, slots=True)
class ItemList:
    """The items of a run, shortened: `counts` such as `480 approved`, and the `rows` to list one by one."""

    counts: tuple[str, ...]
    rows: tuple[ItemStats, ...]


def item_list(rows: Sequence[ItemStats], *, alive: bool = True) -> ItemList:
    """Up to MANY items in order; of more, counts of those that need no attention, then revisions, then failures."""
    if len(rows) <= MANY:
        return ItemList((), tuple(rows))
    counts = Counter(row.status_in(alive=alive) for row in rows if not _needs_attention(row))
    listed = sorted(filter(_needs_attention, rows), key=lambda row: _rank(row.status))
    return ItemList(tuple(f"{number} {status}" for status, number in counts.items()), tuple(listed))


def tries(row: ItemStats, reviewing: bool) -> str:
    """`2 rounds` of drafting and review, or `1 attempt` in a run without reviews."""
    return count(row.round, "round") if reviewing else count(max(row.attempts, int(row.running)), "attempt")


def shown_result(result: str | None, path: str) -> str:
    """A document's path from the reader's folder, from which `path` leads to the project; an address is left unchanged."""
    return path + result if result and "://" not in result else result or ""


def reason_lines(row: ItemStats, path: str = "") -> list[str]:
    """Why an item failed or was not approved, and what to read about it; `path` leads to the project."""
    if row.outcome is None or row.status not in _LAST:
        return []
    reason = "; ".join(one_line(detail) for detail in row.outcome.details)
    if len(reason) > MAX_REASON:
        reason = f"{reason[:MAX_REASON]}..."
    if row.outcome.ending is Ending.FAILED:
        return [f"reason: {seen_from(path, reason)}"] if reason else []
    read = f"read {shown_result(row.outcome.result, path)}" if row.outcome.result else ""
    return [f"reason: {'; '.join(filter(None, (reason, read)))}"] if reason or read else []


def redo_lines(rows: Sequence[ItemStats]) -> list[str]:
    """How to redo items that were not approved, once for all of them."""
    if all(row.status != Verdict.NEEDS_REVISION for row in rows):
        return []
    return ["To redo an item that needs revision, change its text and run the same command again."]


def _needs_attention(row: ItemStats) -> bool:
    if row.outcome is None:
        return row.running
    return row.status in _LAST or row.outcome.ending is Ending.PARKED or row.status == "interrupted"


def _rank(status: str) -> int:
    return 1 + _LAST.index(status) if status in _LAST else 0
