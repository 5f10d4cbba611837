"""What other runs have done with a run's items since it began, according to their journals."""

import contextlib
from pathlib import Path

from agentos.core.protocol import events
from agentos.core.protocol.codec import type_marker
from agentos.core.protocol.results import Ending, Outcome
from agentos.regular_files import UnsafeFile, open_regular
from agentos.storage.journal import NAME, JournalEntry, read_entry
from agentos.storage.locks import Holder, finished_outcome, held_outcome
from agentos.storage.runs import is_alive, run_folders

_ItemEvent = events.ItemStarted | events.ItemSuspended | events.ItemRequeued | events.ItemEnded
_MARKERS = tuple(
    type_marker(kind)
    for kind in (events.ItemStarted, events.ItemSuspended, events.ItemRequeued, events.ItemEnded)
)


class OtherRuns:
    """Finds the items that this run must not start: the run that last had them has ended them, or is about to continue.

    `runs` is the folder of all runs. `began` is the wall time at which this run began, and `own_run` its name, once it has one.
    """

    def __init__(self, runs: Path, began: float) -> None:
        self.own_run = ""
        self._runs = runs
        self.began = began
        self._journals: dict[str, _ItemJournal | None] = {}
        self._failures: dict[str, JournalEntry] = {}

    def outcome(self, item: str, holder: Holder | None) -> Outcome | None:
        """What to report for the item instead of starting it; None if it is free. `holder` last had its lock.

        A failure is reported once: if a person then asks for a retry, the item is free.
        """
        if holder is None or (last := self._last_event(item, holder)) is None:
            return None
        match last.event:
            case events.ItemStarted() | events.ItemRequeued():
                # Between two attempts nobody holds the lock.
                return held_outcome(holder) if is_alive(self._runs / holder.run) else None
            case events.ItemEnded(outcome=outcome) if last.at >= self.began:
                if outcome.ending in (Ending.FINISHED, Ending.FINISHED_BY_OTHER_RUN):
                    return finished_outcome(outcome.verdict)
                if outcome.ending is Ending.FAILED and self._failures.get(item) != last:
                    self._failures[item] = last
                    error = f"it failed in run {holder.run}: {outcome.error}"
                    return Outcome(Ending.FAILED_IN_OTHER_RUN, error=error, details=outcome.details)
        return None

    def have_worked_on(self, item: str, holder: Holder | None) -> bool:
        """Whether another run worked on the item last, after this run began: `--fresh` must not discard that work."""
        last = self._last_event(item, holder) if holder else None
        return last is not None and last.at >= self.began

    def ended_items(self) -> set[str]:
        """The items that other runs, of any project, have ended since this run began. `outcome` says which of them to leave alone."""
        others = [run.name for run in run_folders(self._runs) if run.name != self.own_run]
        journals = [journal for name in others if (journal := self._journal(name))]
        return {
            item
            for journal in journals
            for item, last in journal.last_events().items()
            if isinstance(last.event, events.ItemEnded) and last.at >= self.began
        }

    def _last_event(self, item: str, holder: Holder) -> JournalEntry | None:
        # The name comes from a file in the project, so it must not lead out of the folder.
        if not holder.run or holder.run == self.own_run or Path(holder.run).name != holder.run:
            return None
        journal = self._journal(holder.run)
        return journal.last_events().get(item) if journal else None

    def _journal(self, name: str) -> "_ItemJournal | None":
        """The journal of a run; None if it ended before this run began, so that it need not be read."""
        run = self._runs / name
        if name not in self._journals:
            self._journals[name] = None
            with contextlib.suppress(OSError):
                if is_alive(run) or (run / NAME).stat().st_mtime >= self.began:
                    self._journals[name] = _ItemJournal(run / NAME)
        return self._journals[name]


class _ItemJournal:
    """The last event of each item in a growing journal; each line is read once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._last: dict[str, JournalEntry] = {}

    def last_events(self) -> dict[str, JournalEntry]:
        with contextlib.suppress(OSError, UnsafeFile), open(open_regular(self._path), "rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                entry = read_entry(line) if any(marker in line for marker in _MARKERS) else None
                if entry and isinstance(entry.event, _ItemEvent):
                    self._last[entry.event.item] = entry
        return self._last
