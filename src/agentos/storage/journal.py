"""The journal of a run: every event, in order, from which everything else is derived."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agentos.core import events
from agentos.core.events import Event
from agentos.core.wire import WireError, decode, encode
from agentos.storage.files import private_file

NAME = "events.jsonl"
# A name that is not UTF-8 holds half characters; as backslash escapes they are JSON, and come back.
_AS_JSON = "backslashreplace"


class Journal:
    """A listener that writes; the end of an item is on disk before anyone is told."""

    def __init__(self, folder: Path, redact: Callable[[str], str]) -> None:
        self._descriptor = private_file(folder / NAME)
        self._redact = redact

    def hear(self, event: Event, at: float) -> None:
        if isinstance(event, events.LineWritten):
            return
        record = {"at": round(at, 3), **encode(event)}
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
        _write_all(self._descriptor, (self._redact(line) + "\n").encode(errors=_AS_JSON))
        if isinstance(event, events.ItemEnded | events.RunEnded):
            os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


@dataclass(frozen=True, slots=True)
class Entry:
    at: float
    event: Event


@dataclass(frozen=True, slots=True)
class Unread:
    """A line that is none of ours; `torn` is one without an end, as a crash leaves it."""

    torn: bool


def read_journal(folder: Path) -> Iterator[Entry]:
    """Every entry that can be read; what cannot is passed over."""
    return (line for line in read_lines(folder) if isinstance(line, Entry))


def read_lines(folder: Path) -> Iterator[Entry | Unread]:
    """Every line, in order."""
    with open(folder / NAME, "rb") as file:
        for line in file:
            yield read_entry(line) or Unread(torn=not line.endswith(b"\n"))


def read_entry(line: bytes) -> Entry | None:
    """What one line says; None if it cannot be read."""
    try:
        record = json.loads(line)
        return Entry(float(record["at"]), decode(record))
    except (WireError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]
