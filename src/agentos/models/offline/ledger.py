"""Witnesses every call, whatever the client believes."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TextIO


@dataclass(frozen=True, slots=True)
class Arrival:
    key: str
    role: str
    model: str
    item: str
    prompt: str


@dataclass(slots=True)
class Entry:
    """One call; it is written down once, at its end."""

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


class Ledger:
    """`ending` tells a complete answer from one that the client did not wait for: `dropped`."""

    def __init__(self, clock: Callable[[], float], file: TextIO | None = None) -> None:
        self._clock = clock
        self._file = file
        self._entries: list[Entry] = []
        self._running: Counter[str] = Counter()
        self._most: Counter[str] = Counter()
        self._most_at_all = 0

    @contextmanager
    def witness(self, arrival: Arrival) -> Iterator[Entry]:
        entry = self._open(arrival)
        try:
            yield entry
        finally:
            self._close(entry)

    def as_json(self) -> bytes:
        report = {
            "calls": [asdict(entry) for entry in self._entries],
            "running": self._running.total(),
            "max_concurrent": dict(self._most),
            "max_concurrent_all": self._most_at_all,
        }
        return json.dumps(report).encode()

    def _open(self, arrival: Arrival) -> Entry:
        digest = hashlib.sha256(arrival.prompt.encode(errors="surrogatepass")).hexdigest()[:16]
        seq = len(self._entries) + 1
        entry = Entry(
            seq,
            arrival.key,
            arrival.role,
            arrival.model,
            arrival.item,
            digest,
            self._clock(),
        )
        self._entries.append(entry)
        self._running[entry.key] += 1
        self._most[entry.key] = max(self._most[entry.key], self._running[entry.key])
        self._most_at_all = max(self._most_at_all, self._running.total())
        return entry

    def _close(self, entry: Entry) -> None:
        entry.ended = self._clock()
        entry.ending = "dropped" if entry.ending == "running" else entry.ending
        self._running[entry.key] -= 1
        if self._file:
            self._file.write(json.dumps(asdict(entry)) + "\n")
            self._file.flush()
