"""The current state of each run, read from its journal as it grows and shared by all viewers."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from agentos.core.protocol import events
from agentos.core.run_state.run_record import RunRecord
from agentos.core.run_state.run_stats import RunStats
from agentos.outputs.run_log import LogLine, log_line
from agentos.regular_files import UnsafeFile, open_regular
from agentos.storage.files import ProjectFolder
from agentos.storage.journal import NAME, JournalEntry, check_format, read_entry, read_first_record
from agentos.storage.runs import is_alive, load_run_totals, run_folders, stopped_process

MAX_LOG = 20_000  # log lines kept in memory for each run
MAX_LOADED = 60  # runs whose views are kept in memory
MAX_TOTALS = 2000  # runs whose totals are kept in memory


@dataclass(frozen=True, slots=True)
class JournalLine:
    """One line of a journal; `end` is the offset after it, from which a reader continues."""

    end: int
    text: bytes
    entry: JournalEntry | None

    @property
    def log(self) -> LogLine | None:
        """The line as people read it, if the event is shown in the log."""
        return log_line(self.entry.event, self.entry.at) if self.entry else None


class DocumentFiles(Protocol):
    """The documents of an item, by path in its project."""

    def names(self, folder: str) -> list[str]: ...

    def read(self, name: str) -> bytes: ...


class RunSource(Protocol):
    """Where a run is read from: the folder with its journal, which `update` brings up to date."""

    @property
    def folder(self) -> Path: ...

    @property
    def is_alive(self) -> bool:
        """Whether anything can still be added."""
        ...

    @property
    def problem(self) -> str:
        """Why the view may be out of date, in one line; empty if it is current."""
        ...

    def update(self) -> None: ...

    def stopped_pid(self) -> int | None: ...

    def documents(self, item: str) -> DocumentFiles: ...


@dataclass(frozen=True, slots=True)
class LocalRun:
    """A run of this home; its own process writes the journal."""

    folder: Path
    problem: str = ""

    @property
    def is_alive(self) -> bool:
        return is_alive(self.folder)

    def update(self) -> None:
        pass

    def stopped_pid(self) -> int | None:
        return stopped_process(self.folder)

    def documents(self, item: str) -> DocumentFiles:
        return ProjectFolder(Path(str(read_first_record(self.folder).get("project", ""))))


@dataclass(slots=True)
class RunView:
    """One run: its record and how far the journal has been read. `refresh` reads what is new.

    Any thread may call its methods. The lock protects the record from being read while `refresh` changes it.
    """

    source: RunSource
    is_fleet: bool = False
    offset: int = 0
    record: RunRecord = field(init=False)
    problem: str = ""
    stopped_pid: int | None = None
    """The process id of a run that is suspended, even by SIGSTOP, which the run itself cannot record."""
    changed: dict[str, int] = field(default_factory=dict)
    """Item -> offset after the last event that concerned it."""
    log: list[LogLine] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        check_format(self.folder)
        self.record = RunRecord(self.folder.name, self.source.is_alive)

    @property
    def folder(self) -> Path:
        return self.source.folder

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be added to the journal."""
        return not self.record.alive

    def refresh(self) -> bool:
        """Read what was added; True if anything changed."""
        with self.lock:
            if self.is_over and self.offset:
                return False
            before = (self.offset, self.record.alive, self.stopped_pid, self.problem)
            # Check liveness first: whatever a run wrote before it died is then read below.
            self.source.update()
            self.record.alive = self.source.is_alive
            self.stopped_pid = self.source.stopped_pid() if self.record.alive else None
            self.problem = self.source.problem
            for line in journal_lines(self.folder, self.offset):
                self._apply(line)
            if self.is_fleet:  # its journal does not say how many workers it has: one runs each item
                self.record.stats.workers = max(1, len(self.record.stats.running))
            return before != (self.offset, self.record.alive, self.stopped_pid, self.problem)

    def rows_changed_since(self, offset: int) -> list[str]:
        return [item for item, at in self.changed.items() if at > offset]

    def log_lines(self, item: str = "", level: str = "", limit: int = 500) -> list[LogLine]:
        """The newest lines, oldest first, of one item or of at least one level."""
        with self.lock:
            found = [line for line in self.log if line.matches(item, level)]
        return found[-limit:]

    def _apply(self, line: JournalLine) -> None:
        entry = line.entry
        if entry is None:
            self.record.unread += 1
        else:
            self.record.handle(entry.event, entry.at)
            if item := getattr(entry.event, "item", ""):
                self.changed[item] = line.end
            if isinstance(entry.event, events.RunStarted):
                self.changed.update(dict.fromkeys(entry.event.items, line.end))
            if log := line.log:
                self.log.append(log)
                del self.log[: -MAX_LOG or None]
        self.offset = line.end


def journal_lines(folder: Path, offset: int, limit: int | None = None) -> Iterator[JournalLine]:
    """The complete lines after `offset`, up to about `limit` bytes in total."""
    try:
        with open(open_regular(folder / NAME), "rb") as file:
            file.seek(offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                offset += len(line)
                yield JournalLine(offset, line[:-1], read_entry(line))
                if limit is not None and (limit := limit - len(line)) <= 0:
                    return
    except (OSError, UnsafeFile):
        return


def line_end(folder: Path, offset: int) -> int:
    """The offset itself if a line ends there, otherwise the end of the line that it is in."""
    with open(open_regular(folder / NAME), "rb") as file:
        file.seek(offset - 1)
        return offset - 1 + len(file.readline())


class RunViews(Protocol):
    """The runs that the page shows: those of a home, or the submissions of a fleet."""

    @property
    def problem(self) -> str:
        """One line that says why the list may be out of date; empty if it is current."""
        ...

    def ids(self) -> list[str]:
        """All runs, newest first."""
        ...

    def find(self, run: str) -> RunView | None:
        """The view of a run, up to date. Raises UnsupportedFormat."""
        ...

    def totals(self, run: str) -> RunStats | None:
        """The totals of a run that has ended, without reading its whole journal. Raises UnsupportedFormat."""
        ...


@dataclass(slots=True)
class HomeRuns:
    """The runs of one home."""

    folder: Path
    problem: str = ""
    _views: dict[str, RunView] = field(default_factory=dict)
    _totals: dict[str, RunStats] = field(default_factory=dict)
    # Protects `_views` and `_totals` from concurrent requests.
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ids(self) -> list[str]:
        return [folder.name for folder in run_folders(self.folder)]

    def find(self, run: str) -> RunView | None:
        names = self.ids()
        if run not in names:
            return None
        with self._lock:
            view = self._views.get(run)
            if view is None:
                view = self._views[run] = RunView(LocalRun(self.folder / run))
                forget_runs(self._views, names, MAX_LOADED)
                forget_runs(self._totals, names, MAX_TOTALS)
        view.refresh()
        return view

    def totals(self, run: str) -> RunStats | None:
        with self._lock:
            if run not in self._totals and (found := load_run_totals(self.folder / run)):
                self._totals[run] = found
            return self._totals.get(run)

    def projects(self) -> list[Path]:
        """The projects of all runs, newest first."""
        records = (read_first_record(folder) for folder in run_folders(self.folder))
        names = dict.fromkeys(str(record["project"]) for record in records if record.get("project"))
        return [Path(name) for name in names]


def forget_runs(known: dict[str, RunView] | dict[str, RunStats], names: list[str], limit: int) -> None:
    """Drop removed runs and, if there are too many, the oldest ones; `names` are all runs, newest first."""
    for gone in [run for run in known if run not in names]:
        del known[gone]
    for oldest in [run for run in names if run in known][limit:]:
        del known[oldest]
