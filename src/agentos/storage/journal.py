"""The journal of a run: every event, in order, from which everything else is derived."""

import json
import mmap
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agentos.core.protocol import events
from agentos.core.protocol.codec import CodecError, decode, encode, one_line
from agentos.core.protocol.events import Event
from agentos.storage.files import private_file

NAME = "events.jsonl"
# A name that is not UTF-8 holds half characters; as backslash escapes they are JSON, and come back.
_AS_JSON = "backslashreplace"


class Journal:
    """A listener that writes; the end of an item is on disk before anyone is told.

    What a full disk does not take waits here, in order; what is done stands in the documents anyway.
    """

    def __init__(self, folder: Path, redact: Callable[[str], str], warn: Callable[[OSError], None]) -> None:
        self._descriptor = private_file(folder / NAME)
        self._redact = redact
        self._warn = warn
        self._unwritten = b""

    def on_event(self, event: Event, at: float) -> None:
        if isinstance(event, events.LineWritten):
            return
        record = {"at": at, **encode(event)}
        line = one_line(record)
        self._unwritten += (self._redact(line) + "\n").encode(errors=_AS_JSON)
        try:
            self._write()
            if _is_an_end(event):
                os.fsync(self._descriptor)
        except OSError as error:
            self._warn(error)

    def close(self) -> None:
        os.close(self._descriptor)

    def _write(self) -> None:
        while self._unwritten:
            self._unwritten = self._unwritten[os.write(self._descriptor, self._unwritten) :]


def _is_an_end(event: Event) -> bool:
    """When a run is stopped, thousands may end that were never begun: the end of the run is theirs too."""
    return isinstance(event, events.RunEnded) or (isinstance(event, events.ItemEnded) and event.attempts > 0)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    at: float
    event: Event


@dataclass(frozen=True, slots=True)
class Unread:
    """A line that is none of ours; `torn` is one without an end, as a crash leaves it."""

    torn: bool


def read_journal(folder: Path) -> Iterator[JournalEntry]:
    """Every entry that can be read; what cannot is passed over."""
    return (line for line in read_lines(folder) if isinstance(line, JournalEntry))


def read_lines(folder: Path) -> Iterator[JournalEntry | Unread]:
    """Every line, in order."""
    with open(folder / NAME, "rb") as file:
        for line in file:
            yield read_entry(line) or Unread(torn=not line.endswith(b"\n"))


def lines_with(folder: Path, mark: bytes) -> Iterator[bytes]:
    """The lines that hold this mark; what lies between them is searched through, and not read."""
    with open(folder / NAME, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            at = content.find(mark)
            while at >= 0:
                begin, end = content.rfind(b"\n", 0, at) + 1, content.find(b"\n", at)
                end = len(content) if end < 0 else end
                yield content[begin:end]
                at = content.find(mark, end)


def read_entry(line: bytes) -> JournalEntry | None:
    """What one line says; None if it cannot be read."""
    try:
        record = json.loads(line)
        return JournalEntry(float(record["at"]), decode(record))
    except (CodecError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
