"""Follows the journal and logs of a run while they are being written."""

from collections.abc import Iterator
from pathlib import Path

from agentos.core.protocol import events
from agentos.regular_files import UnsafeFile, open_regular
from agentos.storage.journal import NAME, JournalEntry, check_format, read_entry

MAX_READ = 1024 * 1024  # bytes per call


class Tail:
    """Returns the complete lines added to a file since the last call. The file need not exist yet."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = path
        self._offset = offset
        self._partial_line = b""

    def lines(self) -> list[bytes]:
        try:
            with open(open_regular(self._path), "rb") as file:
                file.seek(self._offset)
                chunk = file.read(MAX_READ)
                self._offset = file.tell()
        except (OSError, UnsafeFile):
            return []
        *lines, self._partial_line = (self._partial_line + chunk).split(b"\n")
        return lines


class Follower:
    """Reads what a run adds: events from its journal, the items' output from their logs."""

    def __init__(self, folder: Path) -> None:
        check_format(folder)
        self._folder = folder
        self._journal = Tail(folder / NAME)
        # Output from before the follower started is not repeated.
        self._logs = {path.stem: Tail(path, path.stat().st_size) for path in folder.glob("*.log")}

    def new_events(self) -> Iterator[JournalEntry]:
        for line in self._journal.lines():
            if (entry := read_entry(line)) is not None:
                if isinstance(entry.event, events.ItemStarted):
                    item = entry.event.item
                    self._logs.setdefault(item, Tail(self._folder / f"{item}.log"))
                yield entry

    def log_lines(self) -> Iterator[events.LineWritten]:
        for item, log in self._logs.items():
            for line in log.lines():
                yield events.LineWritten(item, line.decode("utf-8", "replace"))
