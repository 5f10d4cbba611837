"""Presents one submission as the journal of a run: copies its final events from Postgres into a private folder.

So everything that reads the records of a run can read those of a fleet. The folder is a cache of one process: written in
Postgres's order, deleted when the process ends.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from temporalio.client import WorkflowExecutionStatus

from agentos.core.errors import ServiceAway
from agentos.core.planning.items import is_safe_id
from agentos.core.protocol import events
from agentos.core.protocol.codec import CodecError, EventEncoder, loads
from agentos.core.protocol.results import Ending, Outcome, Usage, failed
from agentos.core.text.line_assembler import one_line
from agentos.fleet.lost_workflows import LostWorkflows
from agentos.fleet.machine_usage import UsageOverMachines
from agentos.storage.files import private_file, private_folder
from agentos.storage.journal import NAME
from agentos.storage.postgres.connecting import is_away
from agentos.storage.postgres.fleet_items import EventCursor
from agentos.storage.postgres.submissions import EventRow, ItemRows, SubmissionReader, SubmissionRow
from agentos.workflows.registry import BUILT_IN

POLL_INTERVAL = 0.25  # seconds
ROWS_INTERVAL = 1.0  # seconds between reads of the items' rows
RETRY_INTERVAL = 1.0  # seconds after Postgres did not answer
Answer = TypeVar("Answer")
SIGNS_OF_WORK = (events.ItemStarted, events.WorkerStarted, events.NodeStarted, events.LeaseRequested)
SUPERSEDED = Outcome(Ending.INTERRUPTED, error="a later submission has taken it over")
NEVER_STARTED = Outcome(Ending.INTERRUPTED, error="stopped before a machine had it")


@dataclass(slots=True)
class SharedReader:
    """The connection of a process that shows a fleet. `lock` restricts it to one thread at a time."""

    reader: SubmissionReader
    lock: threading.RLock = field(default_factory=threading.RLock)
    problem: str = ""
    """One line that says why Postgres is unreachable; empty while it is reachable."""
    _retry_at: float = 0.0

    def ask(self, question: Callable[[SubmissionReader], Answer]) -> Answer | None:
        """Return the result, or None while Postgres is unreachable; it is not retried at once."""
        with self.lock:
            if self.problem and time.monotonic() < self._retry_at:
                return None
            try:
                answer = question(self.reader)
            except Exception as error:
                if not is_away(error):
                    raise
                self.problem = f"{away_text(error)}; trying again"
                self._retry_at = time.monotonic() + RETRY_INTERVAL
                return None
            self.problem = ""
            return answer

    @contextlib.contextmanager
    def session(self) -> Iterator[SubmissionReader]:
        """The connection for several queries in a row. Raises ServiceAway if Postgres is unreachable."""
        with self.lock:
            try:
                yield self.reader
            except Exception as error:
                if not is_away(error):
                    raise
                raise ServiceAway(f"{away_text(error)}; try again") from error


def away_text(error: Exception) -> str:
    """The error in one line, without the question that libpq appends for administrators."""
    reason = one_line(str(error)).partition(" Is the server running")[0]
    return f"Postgres cannot be reached ({reason[:200]})"


class SubmissionJournal:
    """Call `update` from one thread at a time; it asks Postgres at most every POLL_INTERVAL."""

    def __init__(self, folder: Path, row: SubmissionRow, shared: SharedReader) -> None:
        self.folder = folder
        self.row = row
        self._shared = shared
        self._cursor = EventCursor(0)
        self._items: ItemRows | None = None
        self._threads: dict[str, str] = {}
        self._usage = UsageOverMachines()
        self._endings: dict[str, Ending] = {}
        self._at_work: set[str] = set()
        self._starts: dict[str, int] = {}
        self._waited_seconds = 0.0
        self._last_at = row.at
        self._is_over = False
        self._descriptor = -1
        self._encoder = EventEncoder(str)
        self._lost = LostWorkflows()
        self._due = self._rows_due = 0.0

    @property
    def problem(self) -> str:
        return "" if self._is_over else self._shared.problem

    @property
    def is_alive(self) -> bool:
        """Whether anything can still be added."""
        return not self._is_over

    def update(self) -> None:
        """Copy new events. Does nothing while Postgres is unreachable."""
        now = time.monotonic()
        if self._is_over or now < self._due:
            return
        self._due = now + POLL_INTERVAL
        if self._descriptor < 0 and self._shared.ask(self._begin) is None:
            return
        if now >= self._rows_due:
            self._rows_due = now + ROWS_INTERVAL
            self._items = self._shared.ask(lambda reader: reader.items(self.row)) or self._items
        horizon = self._shared.ask(lambda reader: reader.horizon())
        if horizon is not None and self._read_events() and self._items and horizon >= self._items.horizon:
            self._end_what_is_over(self._items)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _begin(self, reader: SubmissionReader) -> bool:
        found = reader.items(self.row)
        threads = {item.item: item.thread for item in found.items.values()}
        own = {item for item, row in found.items.items() if row.submission == self.row.number}
        # Of the items that a later submission took over, those that this one wrote events for.
        cursor, others = EventCursor(0), [threads[item] for item in threads if item not in own]
        before = None
        while others and cursor != before:
            before, kinds = cursor, (events.ItemStarted, events.ItemEnded)
            rows, cursor = reader.events(self.row.number, others, cursor, kinds)
            own |= {row.item for row in rows}
        names = tuple(item for item in found.items if item in own)
        titles = reader.titles(threads[name] for name in names)
        private_folder(self.folder)
        self._descriptor = private_file(self.folder / NAME)
        self._threads = {name: threads[name] for name in names}
        self._write(run_started(self.row, names, tuple(titles.get(name, "") for name in names)), self.row.at)
        return True

    def _read_events(self) -> bool:
        """Return whether all of them could be read."""
        while (found := self._shared.ask(self._next_events)) is not None:
            rows, cursor = found
            if cursor == self._cursor:
                return True
            self._cursor = cursor
            for row in rows:
                self._copy(row)
        return False

    def _next_events(self, reader: SubmissionReader) -> tuple[list[EventRow], EventCursor]:
        return reader.events(self.row.number, self._threads.values(), self._cursor)

    def _copy(self, row: EventRow) -> None:
        """The event unchanged, except that the end of an item gets its usage over all machines."""
        self._last_at = max(self._last_at, row.at)
        try:
            event = loads(row.text)
        except CodecError:
            event = None  # of a newer version; readers of the journal count such events
        if isinstance(event, SIGNS_OF_WORK) and row.item not in self._at_work:
            # A machine that died may never have written the start event.
            self._starts[row.item] = self._starts.get(row.item, 0) + 1
            started = event if isinstance(event, events.ItemStarted) else None
            self._write(started or events.ItemStarted(row.item, 0, self._starts[row.item]), row.at)
            self._at_work.add(row.item)
            self._endings.pop(row.item, None)
            if started:
                return
        match event:
            case events.LineWritten():
                self._write_output(event)
                return
            case events.ItemRetried() | events.ItemSuspended():
                self._at_work.discard(row.item)
            case events.LeaseGranted():
                self._waited_seconds += event.waited_seconds
            case events.LeaseReleased():
                self._usage.handle(event)
            case events.ItemEnded():
                self._at_work.discard(row.item)
                self._endings[row.item] = event.outcome.ending
                self._write(self._usage.handle(event), row.at)
                return
            case _:
                pass
        self._append(NAME, row.text)

    def _write_output(self, event: events.LineWritten) -> None:
        if event.item in self._threads and is_safe_id(event.item):
            self._append(f"{event.item}.log", event.text)

    def _end_what_is_over(self, rows: ItemRows) -> None:
        """End the items whose end no worker recorded, and the run with the last one. Everything that had been written when
        the rows were read has been copied by now."""
        open_items = [item for item in self._threads if self._endings.get(item) in (None, Ending.PARKED)]
        own = {
            item: row
            for item in open_items
            if (row := rows.items.get(item)) and row.submission == self.row.number
        }
        live = [item for item, row in own.items() if row.is_live]
        missing = self._lost.look([own[item].thread for item in live])
        for item in open_items:
            row = own.get(item)
            if row is None:
                self._end(item, SUPERSEDED)
            elif not row.is_live:
                self._end(item, row.outcome or NEVER_STARTED)
            elif row.thread in missing:
                self._end(item, lost_outcome(missing[row.thread]))
        if all(self._endings.get(item) not in (None, Ending.PARKED) for item in self._threads):
            self._write(
                events.RunEnded(self._code(), self._last_at - self.row.at, self._waited_seconds),
                self._last_at,
            )
            self._is_over = True
            self.close()

    def _end(self, item: str, outcome: Outcome) -> None:
        self._endings[item] = outcome.ending
        self._last_at = max(self._last_at, time.time()) if outcome is NEVER_STARTED else self._last_at
        self._write(self._usage.handle(events.ItemEnded(item, outcome, 0.0, Usage(), 0)), self._last_at)

    def _code(self) -> int:
        endings = self._endings.values()
        return 75 if Ending.INTERRUPTED in endings else int(Ending.FAILED in endings)

    def _write(self, event: events.Event, at: float) -> None:
        self._append(NAME, self._encoder.line(event, round(at, 3)))

    def _append(self, name: str, line: str) -> None:
        content = f"{line}\n".encode(errors="backslashreplace")
        if name == NAME:
            _write_all(self._descriptor, content)
            return
        descriptor = private_file(self.folder / name)
        try:
            _write_all(descriptor, content)
        finally:
            os.close(descriptor)


def run_started(
    row: SubmissionRow, items: tuple[str, ...] = (), titles: tuple[str, ...] = ()
) -> events.RunStarted:
    """The start event of a run with this submission's items."""
    command = f"{row.workflow}-workflow" if row.workflow in BUILT_IN else f"agentos run {row.workflow}"
    return events.RunStarted(
        *(f"S{row.number}", row.workflow, row.project, items, 1, ()),
        command=f"{command} --all --fleet",
        titles=titles,
        has_review=row.workflow in BUILT_IN,
    )


def lost_outcome(status: WorkflowExecutionStatus | None) -> Outcome:
    """The outcome of an item whose workflow ended without recording one."""
    if status is WorkflowExecutionStatus.CANCELED:
        return NEVER_STARTED
    return failed("the fleet has given it up: see its workflow in Temporal for the reason")


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]
