"""The records of a run, read while they are written."""

from collections.abc import Iterator
from pathlib import Path

from agentos.core.protocol import events
from agentos.storage.journal import NAME, JournalEntry, check_format, read_entry

CHUNK = 1024 * 1024


class Tail:
    """The whole lines that have come since the last look; a file that is not there yet has none."""

    def __init__(self, path: Path, place: int = 0) -> None:
        self._path = path
        self._place = place
        self._rest = b""

    def lines(self) -> list[bytes]:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._place)
                chunk = file.read(CHUNK)
                self._place = file.tell()
        except OSError:
            return []
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return lines


class Follower:
    """What happened since the last look: an item's lines from its log, everything else from the journal."""

    def __init__(self, folder: Path) -> None:
        check_format(folder)
        self._folder = folder
        self._journal = Tail(folder / NAME)
        # What an item has said before we came is not said again.
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
