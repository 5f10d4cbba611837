"""Log of every call that the offline server received, for tests to compare with what a client reports."""

import hashlib
import json
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, TextIO

MAX_ENTRIES = 100_000


@dataclass(frozen=True, slots=True)
class Arrival:
    """What is known about a call when it arrives."""

    key: str
    role: str
    model: str
    item: str
    prompt: str


@dataclass(slots=True)
class CallLogEntry:
    """One call; it is written to the file once, when it ends."""

    seq: int
    key: str
    role: str
    model: str
    item: str
    prompt_sha256: str
    started: float
    ended: float | None = None
    status: int | None = None
    fault: str | None = None
    ending: str = "running"


FIELD_NAMES = tuple(field.name for field in fields(CallLogEntry))


class CallLog:
    """Keeps the last calls and counts all of them.

    A call that the client did not wait for ends as `dropped`.
    """

    def __init__(
        self, clock: Callable[[], float], file: TextIO | None = None, max_entries: int = MAX_ENTRIES
    ) -> None:
        self._clock = clock
        self._file = file
        self._entries: deque[CallLogEntry] = deque(maxlen=max_entries)
        self._seen = 0
        self._statuses: dict[str, Counter[str]] = {}
        self._running: Counter[str] = Counter()
        self._max_concurrent: Counter[str] = Counter()
        self._max_concurrent_all = 0

    @contextmanager
    def record(self, arrival: Arrival) -> Iterator[CallLogEntry]:
        entry = self._open(arrival)
        try:
            yield entry
        finally:
            self._close(entry)

    def as_json(self, last: int | None = None) -> bytes:
        """The report as JSON. `last` limits the calls listed, because encoding a long list blocks the server."""
        kept = len(self._entries)
        shown = kept if last is None else min(last, kept)
        report = {
            "calls": [_as_dict(entry) for entry in islice(self._entries, kept - shown, None)],
            "seen": self._seen,
            "statuses": self._statuses,
            "running": self._running.total(),
            "max_concurrent": dict(self._max_concurrent),
            "max_concurrent_all": self._max_concurrent_all,
        }
        return json.dumps(report).encode()

    def _open(self, arrival: Arrival) -> CallLogEntry:
        digest = hashlib.sha256(arrival.prompt.encode(errors="surrogatepass")).hexdigest()[:16]
        self._seen += 1
        entry = CallLogEntry(
            self._seen,
            arrival.key,
            arrival.role,
            arrival.model,
            arrival.item,
            digest,
            self._clock(),
        )
        self._entries.append(entry)
        self._running[entry.key] += 1
        self._max_concurrent[entry.key] = max(self._max_concurrent[entry.key], self._running[entry.key])
        self._max_concurrent_all = max(self._max_concurrent_all, self._running.total())
        return entry

    def _close(self, entry: CallLogEntry) -> None:
        entry.ended = self._clock()
        entry.ending = "dropped" if entry.ending == "running" else entry.ending
        self._running[entry.key] -= 1
        self._statuses.setdefault(entry.key, Counter())[str(entry.status or entry.ending)] += 1
        if self._file:
            self._file.write(json.dumps(_as_dict(entry)) + "\n")
            self._file.flush()


def _as_dict(entry: CallLogEntry) -> dict[str, Any]:
    """Ten times as fast as asdict(), which makes deep copies."""
    return {name: getattr(entry, name) for name in FIELD_NAMES}
