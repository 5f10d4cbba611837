"""The journal of a run: every event in order. Everything else about a run is derived from it."""

import json
import mmap
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentos.core.errors import UnsupportedFormat
from agentos.core.protocol import events
from agentos.core.protocol.codec import WIRE_NAMES, CodecError, EventEncoder, decode
from agentos.core.protocol.events import FORMAT, Event
from agentos.regular_files import UnsafeFile, open_regular
from agentos.storage.files import private_file

NAME = "events.jsonl"
MAX_FIRST_LINE = 64 * 1024 * 1024  # bytes; it names every item of the run
MAX_READ = 1024 * 1024  # bytes per call


class Journal:
    """A listener that appends every event to `events.jsonl`.

    The end of an item or a run is on disk (fsync) before any later listener receives it. Lines that do not fit on a
    full disk are kept in memory, in order, and written with the next event. Output lines of workers are left out,
    because they are in the item's log.
    """

    def __init__(self, folder: Path, encoder: EventEncoder, warn: Callable[[OSError], None]) -> None:
        self._descriptor = private_file(folder / NAME)
        self._encoder = encoder
        self._warn = warn
        self._unwritten = b""

    def on_event(self, event: Event, at: float) -> None:
        if isinstance(event, events.LineWritten):
            return
        # A path that is not UTF-8 holds lone surrogates. As backslash escapes they are valid JSON and can be read back.
        self._unwritten += (self._encoder.line(event, at) + "\n").encode(errors="backslashreplace")
        try:
            while self._unwritten:
                self._unwritten = self._unwritten[os.write(self._descriptor, self._unwritten) :]
            if _must_be_synced(event):
                os.fsync(self._descriptor)
        except OSError as error:
            self._warn(error)

    def close(self) -> None:
        os.close(self._descriptor)


def _must_be_synced(event: Event) -> bool:
    """Whether to sync. Stopping a run may end thousands of items that never started; RunEnded's sync covers those."""
    return isinstance(event, events.RunEnded) or (isinstance(event, events.ItemEnded) and event.attempts > 0)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """An event and the wall time at which it was published."""

    at: float
    event: Event


@dataclass(frozen=True, slots=True)
class UnreadableLine:
    """A line that is not an event; `torn` if it has no newline, as a crash leaves it."""

    torn: bool


def read_journal(folder: Path) -> Iterator[JournalEntry]:
    """Every readable entry; other lines are skipped. Raises UnsupportedFormat."""
    return (line for line in read_lines(folder) if isinstance(line, JournalEntry))


def read_lines(folder: Path) -> Iterator[JournalEntry | UnreadableLine]:
    """Every line in order. Raises UnsupportedFormat."""
    with open(open_regular(folder / NAME), "rb") as file:
        for number, line in enumerate(file):
            if number == 0:
                _check_first_line(folder, line)
            yield read_entry(line) or UnreadableLine(torn=not line.endswith(b"\n"))


def check_format(folder: Path) -> None:
    """Raise UnsupportedFormat if another version of agentos wrote this journal."""
    _check_first_line(folder, _first_line(folder))


def read_first_record(folder: Path) -> dict[str, Any]:
    """The first line as plain JSON, whichever version wrote it; empty if it cannot be read."""
    return _json_object(_first_line(folder))


def _check_first_line(folder: Path, line: bytes) -> None:
    record = _json_object(line)
    name = record.get("type")
    # Before format 2, types were class names and no record had a format.
    is_other = isinstance(name, str) and name not in WIRE_NAMES.values()
    if is_other or (name == WIRE_NAMES[events.RunStarted] and record.get("format") != FORMAT):
        raise UnsupportedFormat(
            f"run {folder.name} was written by another version of agentos (journal format "
            f"{record.get('format', 1)}, this version reads {FORMAT}): read it with that version, "
            f"or delete {folder}"
        )


def _first_line(folder: Path) -> bytes:
    try:
        with open(open_regular(folder / NAME), "rb") as file:
            return file.readline(MAX_FIRST_LINE)
    except FileNotFoundError:
        return b""


def _json_object(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def lines_with(folder: Path, marker: bytes) -> Iterator[bytes]:
    """The lines that contain this marker (see `type_marker`), found without decoding the other lines."""
    with open(open_regular(folder / NAME), "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            at = content.find(marker)
            while at >= 0:
                begin, end = content.rfind(b"\n", 0, at) + 1, content.find(b"\n", at)
                end = len(content) if end < 0 else end
                yield content[begin:end]
                at = content.find(marker, end)


def read_entry(line: bytes) -> JournalEntry | None:
    """The entry on one line; None if the line cannot be read."""
    try:
        record = json.loads(line)
        return JournalEntry(float(record["at"]), decode(record))
    except (CodecError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


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
    """Reads what a run appends: events to its journal, the items' output to their logs."""

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
