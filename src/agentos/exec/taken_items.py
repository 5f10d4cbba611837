"""Finds the items of a run that other runs of the same command hold or have ended."""

from collections.abc import Collection, Mapping
from pathlib import Path

from agentos.core.planning.exec_command import record_name
from agentos.core.planning.items import Item
from agentos.core.protocol.results import Ending, Outcome, TakenItem
from agentos.exec.done_markers import DoneMarkers
from agentos.storage.locks import Holder, ItemLocks, finished_outcome, held_outcome
from agentos.storage.other_runs import OtherRuns


class TakenItems:
    """Says which items to leave to other runs, according to locks, journals and done markers.

    `redone` are the ids of the items to run again although they are done.
    """

    def __init__(
        self, records: Path, items: Mapping[str, Item], redone: Collection[str], other_runs: OtherRuns
    ) -> None:
        self._locks = ItemLocks.inside(records)
        self._markers = DoneMarkers(records)
        self._items = items
        self._redone = redone
        self._other_runs = other_runs

    def held_or_ended(self, items: list[str]) -> list[TakenItem]:
        found = ((item, self._outcome(self._items[item])) for item in items)
        return [TakenItem(item, outcome) for item, outcome in found if outcome]

    def ended(self, items: list[str]) -> list[TakenItem]:
        ended = self._other_runs.ended_items()
        taken = self.held_or_ended([item for item in items if item in ended])
        return [found for found in taken if found.outcome.ending is not Ending.HELD_BY_OTHER_RUN]

    def is_redone(self, item: Item) -> bool:
        """Whether to run the item again although it is done; False once another run has redone it."""
        return self._is_redone(item, self._holder(item))

    def _outcome(self, item: Item) -> Outcome | None:
        holder = self._holder(item)
        if self._locks.is_held(record_name(item.source)):
            return held_outcome(holder)
        if holder is None or holder.run == self._other_runs.own_run:
            return None
        if outcome := self._other_runs.outcome(item.id, holder):
            return outcome
        if self._is_redone(item, holder) or not self._markers.is_done(item):
            return None
        return finished_outcome()

    def _is_redone(self, item: Item, holder: Holder | None) -> bool:
        return item.id in self._redone and not self._other_runs.have_worked_on(item.id, holder)

    def _holder(self, item: Item) -> Holder | None:
        return self._locks.holder(record_name(item.source))
