"""Decisions on parked items: noticed within a second, at a cost that does not grow with the number of events."""

import contextlib
import json
import os
import sqlite3
import sys
from pathlib import Path

import pytest

from agentos.core.planning.gates import Gate, GateRequest, ParkedItem, ReviewAction, ReviewDecision
from agentos.core.protocol import events
from agentos.core.protocol.codec import pack
from agentos.core.protocol.commands import Command, StartWorker
from agentos.core.protocol.events import EngineEvent, WorkerEvent
from agentos.core.protocol.ports import Clock
from agentos.core.protocol.results import Ending, Outcome
from agentos.core.quota.budget import Limits
from agentos.core.quota.pool import Pool
from agentos.core.scheduling.scheduler import Scheduler
from agentos.run.event_loop import DECISION_POLL_INTERVAL, EventLoop, ExternalInputs
from agentos.storage.checkpoints import write_note
from agentos.storage.peer_log import NoPeers
from agentos.storage.review_notes import PARKING, SETTLE_TIME, DecisionWatch, decision_note

PARKED = 500
EVENTS = 2000
SECONDS_PER_EVENT = 0.01
NOW = 1_800_000_000.0
opened: list[str] = []
_is_hooked = False


@pytest.fixture
def opens() -> list[str]:
    """Every database that is opened during the test."""
    global _is_hooked
    if not _is_hooked:
        # A hook cannot be removed, so it is installed once.
        sys.addaudithook(
            lambda name, args: opened.append(str(args[0])) if name == "sqlite3.connect" else None
        )
        _is_hooked = True
    opened.clear()
    return opened


def park(folder: Path, item: str, mtime: float = NOW - 60) -> Path:
    path = folder / f"{item}.db"
    request = GateRequest(1, Gate.DRAFT, 1, "docs/lineage/active/1-lld/002-draft.md")
    parked = ParkedItem(item, "lld", "", "N2_human_edit", "docs/lineage/active/1-lld", "run", 0.0, request)
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE agentos_notes (name TEXT PRIMARY KEY, text TEXT NOT NULL)")
        database.execute("INSERT INTO agentos_notes VALUES (?, ?)", (PARKING, json.dumps(pack(parked))))
    os.utime(path, (mtime, mtime))
    return path


def write_decision(path: Path, action: ReviewAction) -> None:
    write_note(path, decision_note(1), json.dumps(pack(ReviewDecision(action))))


class ParkingEngine:
    """Parks every item but the last, which writes a line per `receive` and then finishes. Time passes per event."""

    def __init__(self, items: tuple[str, ...]) -> None:
        self.now = 0.0
        self._busy = items[-1]
        self._lines_left = EVENTS
        self._events: list[EngineEvent | WorkerEvent] = []

    def execute(self, command: Command) -> None:
        if isinstance(command, StartWorker):
            self._events.append(events.WorkerStarted(command.item, 1))
            if command.item != self._busy:
                self._end(command.item, Ending.PARKED)

    def receive(self, timeout: float | None) -> list[EngineEvent | WorkerEvent]:
        if not self._events:
            self.now += SECONDS_PER_EVENT
            self._lines_left -= 1
            if self._lines_left:
                return [events.LineWritten(self._busy, "at work")]
            self._end(self._busy, Ending.FINISHED)
        received, self._events = self._events, []
        return received

    def _end(self, item: str, ending: Ending) -> None:
        self._events += [
            events.WorkerReported(item, Outcome(ending)),
            events.WorkerExited(item, "exit status 0", clean=True),
        ]

    def wake(self) -> None: ...

    def watch(self, descriptor: int) -> None: ...

    def close(self) -> None: ...


def run_with_parked_items(folder: Path) -> int:
    """The number of polls in a run of EVENTS events."""
    items = tuple(f"LLD-{number}" for number in range(PARKED + 1))
    content, paths = park(folder, "LLD-0").read_bytes(), {}
    for item in items[:-1]:
        paths[item] = folder / f"{item}.db"
        paths[item].write_bytes(content)
        os.utime(paths[item], (NOW - 60, NOW - 60))
    opened.clear()
    watch = DecisionWatch(paths.__getitem__, lambda: NOW)
    polled: list[int] = []

    def decisions(parked: list[str]) -> list[events.ItemDecided]:
        polled.append(len(parked))
        return watch(parked)

    engine = ParkingEngine(items)
    scheduler = Scheduler(items, Pool(()), Limits(len(items)), lambda: 0.5, 0.0)
    loop = EventLoop(scheduler, engine, [], Clock(lambda: engine.now, lambda: NOW), NoPeers())
    started = events.RunStarted("run", "lld", str(folder), items, len(items), ())
    assert loop.run(started, ExternalInputs([], decisions=decisions)) == 0
    assert polled[-1] == PARKED
    return len(polled)


def test_with_500_parked_items_the_cost_of_an_event_does_not_grow(tmp_path: Path, opens: list[str]) -> None:
    """Each database is opened once, and the files are looked at once a second, however many events arrive."""
    polls = run_with_parked_items(tmp_path)
    seconds = EVENTS * SECONDS_PER_EVENT
    assert polls <= seconds / DECISION_POLL_INTERVAL + 2
    assert len(opens) == PARKED


def test_a_decision_is_read_once_the_file_has_changed(tmp_path: Path, opens: list[str]) -> None:
    path = park(tmp_path, "LLD-1")
    watch = DecisionWatch(lambda item: path, lambda: NOW)
    opens.clear()
    assert watch(["LLD-1"]) == watch(["LLD-1"]) == []
    assert len(opens) == 1
    write_decision(path, ReviewAction.APPROVE)
    assert watch(["LLD-1"]) == [events.ItemDecided("LLD-1", "approve")]


def test_a_file_that_was_just_written_is_read_again(tmp_path: Path, opens: list[str]) -> None:
    """A second write may leave its modification time as it was."""
    path = park(tmp_path, "LLD-1", mtime=NOW - SETTLE_TIME / 2)
    stamp = path.stat()
    watch = DecisionWatch(lambda item: path, lambda: NOW)
    assert watch(["LLD-1"]) == []
    write_decision(path, ReviewAction.APPROVE)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert watch(["LLD-1"]) == [events.ItemDecided("LLD-1", "approve")]


def test_an_item_that_is_parked_again_is_read_again(tmp_path: Path) -> None:
    path = park(tmp_path, "LLD-1")
    watch = DecisionWatch(lambda item: path, lambda: NOW)
    assert watch(["LLD-1"]) == []
    stamp = path.stat()
    write_decision(path, ReviewAction.REJECT)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert watch([]) == []
    assert watch(["LLD-1"]) == [events.ItemDecided("LLD-1", "reject")]


def test_a_missing_database_is_not_a_decision(tmp_path: Path) -> None:
    watch = DecisionWatch(lambda item: tmp_path / "gone.db", lambda: NOW)
    assert watch(["LLD-1"]) == []
