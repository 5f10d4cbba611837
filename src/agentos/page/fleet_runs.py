"""Presents the submissions of a fleet as the page's runs, read from Postgres."""

import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agentos.core.errors import ServiceAway
from agentos.core.protocol import events
from agentos.core.protocol.codec import CodecError, loads
from agentos.core.run_state.run_stats import RunStats
from agentos.fleet.machine_usage import UsageOverMachines
from agentos.fleet.submission_journal import SharedReader, SubmissionJournal, run_started
from agentos.page.run_view import MAX_LOADED, MAX_TOTALS, DocumentFiles, RunView, forget_runs
from agentos.storage.postgres.fleet_items import EventCursor, FleetDatabase, FleetDocument
from agentos.storage.postgres.submissions import EventRow, SubmissionReader, SubmissionRow

LIST_INTERVAL = 1.0  # seconds
OPEN_TIMEOUT = 5.0  # seconds
TOTALS = (events.ItemEnded, events.CallCompleted, events.LeaseReleased)


@dataclass(frozen=True, slots=True)
class StoredDocuments:
    """The documents of one item as they are in Postgres now."""

    contents: dict[str, bytes]

    @classmethod
    def of(cls, found: Sequence[FleetDocument]) -> "StoredDocuments":
        return cls({document.path: document.content for document in found if document.content is not None})

    def names(self, folder: str) -> list[str]:
        below = [path.removeprefix(f"{folder}/") for path in self.contents if path.startswith(f"{folder}/")]
        return sorted({name.partition("/")[0] for name in below})

    def read(self, name: str) -> bytes:
        if name not in self.contents:
            raise FileNotFoundError(name)
        return self.contents[name]


@dataclass(frozen=True, slots=True)
class FleetRun:
    """A submission as a RunSource."""

    journal: SubmissionJournal
    shared: SharedReader
    database: FleetDatabase

    @property
    def folder(self) -> Path:
        return self.journal.folder

    @property
    def is_alive(self) -> bool:
        return self.journal.is_alive

    @property
    def problem(self) -> str:
        return self.journal.problem

    def update(self) -> None:
        self.journal.update()

    def stopped_pid(self) -> int | None:
        return None

    def documents(self, item: str) -> DocumentFiles:
        with self.shared.session():  # `database` is the connection of its reader
            return StoredDocuments.of(self.database.documents(item, self.journal.row.project))


@dataclass(slots=True)
class FleetRuns:
    """Every submission, newest first, with the ids S1, S2, ... Each is copied into a folder below `scratch` when
    somebody looks at it."""

    shared: SharedReader
    database: FleetDatabase
    scratch: Path
    _rows: dict[str, SubmissionRow] = field(default_factory=dict)
    _views: dict[str, RunView] = field(default_factory=dict)
    _totals: dict[str, RunStats] = field(default_factory=dict)
    _opened: int = 0
    _due: float = 0.0
    # Protects all of the fields above from concurrent requests.
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def problem(self) -> str:
        return self.shared.problem

    def ids(self) -> list[str]:
        with self._lock:
            if time.monotonic() >= self._due:
                self._due = time.monotonic() + LIST_INTERVAL
                rows = self.shared.ask(lambda reader: reader.submissions())
                if rows is not None:
                    self._rows = {f"S{row.number}": row for row in rows}
            return list(self._rows)

    def find(self, run: str) -> RunView | None:
        with self._lock:
            view = self._views.get(run) or self._open(run)
        if view is not None:
            view.refresh()
        return view

    def row(self, run: str) -> SubmissionRow | None:
        """Also finds a submission that is no longer among the newest."""
        if run in self.ids():
            return self._rows[run]
        if not run.startswith("S") or not run[1:].isdecimal() or len(run) > 15:
            return None
        with self.shared.session() as reader:
            return next(iter(reader.submissions([int(run[1:])])), None)

    def totals(self, run: str) -> RunStats | None:
        with self._lock:
            row = self._rows.get(run)
            if run not in self._totals and row and not row.live and run not in self._views:
                found = self.shared.ask(lambda reader: load_totals(reader, row))
                if found:
                    self._totals[run] = found
                    forget_runs(self._totals, list(self._rows), MAX_TOTALS)
            return self._totals.get(run)

    def _open(self, run: str) -> RunView | None:
        row = self.row(run)
        if row is None:
            return None
        self._opened += 1
        # A new name each time: a stream may still be reading a folder that was dropped.
        folder = self.scratch / str(self._opened) / run
        source = FleetRun(SubmissionJournal(folder, row, self.shared), self.shared, self.database)
        source.update()
        if not folder.exists():
            raise ServiceAway(self.problem or "Postgres does not answer; trying again")
        self._views[run] = RunView(source, is_fleet=True)
        over = {name: view for name, view in self._views.items() if view.is_over}
        kept = dict(over)
        forget_runs(kept, sorted(over, key=lambda name: -int(name[1:])), MAX_LOADED)
        for gone in over.keys() - kept.keys():
            del self._views[gone]
        return self._views[run]


def load_totals(reader: SubmissionReader, row: SubmissionRow) -> RunStats | None:
    """The totals of a submission that is over, from the few events that hold them; None if those are not enough."""
    found = reader.items(row)
    threads = [item.thread for item in found.items.values()]
    rows: list[EventRow] = []
    cursor, before = EventCursor(0), None
    while cursor != before:
        before = cursor
        more, cursor = reader.events(row.number, threads, cursor, TOTALS)
        rows += more
    names = {item.item for item in found.items.values() if item.submission == row.number}
    names |= {entry.item for entry in rows}
    stats, usage = RunStats(), UsageOverMachines()
    stats.handle(run_started(row, tuple(names)), row.at)
    for entry in rows:
        with contextlib.suppress(CodecError, KeyError):
            stats.handle(usage.handle(loads(entry.text)), entry.at)
    if not names or any(item.outcome is None for item in stats.rows.values()):
        return None
    code = 75 if any(item.status in ("interrupted", "not started") for item in stats.rows.values()) else 0
    code = code or int(any(item.status == "failed" for item in stats.rows.values()))
    stats.handle(events.RunEnded(code, stats.last - row.at, 0.0), stats.last)
    return stats
