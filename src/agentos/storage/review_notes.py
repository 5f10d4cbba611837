"""Parked items and review decisions, stored as notes in an item's checkpoint and polled during a run."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from agentos.core.planning.gates import ParkedItem, ReviewDecision, ReviewState
from agentos.core.protocol.codec import CodecError, unpack
from agentos.core.protocol.events import ItemDecided
from agentos.storage.checkpoints import read_notes

PARKING = "parking"
REJECTED = "rejected"
"""The note with the number of the request whose rejection has ended the item as failed."""
SETTLE_TIME = 2.0  # seconds; file systems may give two writes this close the same modification time
FileStamp = tuple[tuple[int, int] | None, ...]


def decision_note(number: int) -> str:
    """The name of the note for one gate, so that no decision can be mistaken for that of another gate."""
    return f"decision {number}"


def edit_note(number: int) -> str:
    """The note of an edited draft, kept until the decision is made."""
    return f"edit {number}"


def read_parked(path: Path) -> ReviewState | None:
    """The review state of the item with this checkpoint, from when it was last parked. Writes nothing."""
    return review_state(read_notes(path))


def review_state(notes: Mapping[str, str]) -> ReviewState | None:
    """The review state of the item with these checkpoint notes, from when it was last parked."""
    try:
        parking: ParkedItem = unpack(ParkedItem, json.loads(notes[PARKING]))
        if notes.get(REJECTED) == str(parking.request.number):
            return None
        text = notes.get(decision_note(parking.request.number))
        decision: ReviewDecision | None = None if text is None else unpack(ReviewDecision, json.loads(text))
    except (KeyError, ValueError, CodecError):
        return None
    return ReviewState(parking, notes.get(edit_note(parking.request.number)), decision)


class DecisionWatch:
    """Reads a parked item's checkpoint database only when the file has changed since the last read.

    A poll costs two `stat` calls per parked item; a database is opened after a write to it, not per poll.
    """

    def __init__(self, database: Callable[[str], Path], wall: Callable[[], float]) -> None:
        self._database = database
        self._wall = wall
        self._undecided: dict[str, FileStamp] = {}

    def __call__(self, parked: list[str]) -> list[ItemDecided]:
        """The parked items that have a decision."""
        self._undecided = {item: self._undecided[item] for item in parked if item in self._undecided}
        decided = []
        for item in parked:
            path = self._database(item)
            stamp = _stamp(path)
            if self._undecided.get(item) == stamp:
                continue
            state = read_parked(path)
            if state and state.decision:
                decided.append(ItemDecided(item, state.decision.action.value))
            elif self._is_settled(stamp):
                self._undecided[item] = stamp
        return decided

    def _is_settled(self, stamp: FileStamp) -> bool:
        """Whether a later write is certain to change the stamp, which was taken before the read."""
        newest = max((file[0] for file in stamp if file), default=0)
        return newest / 1e9 < self._wall() - SETTLE_TIME


def _stamp(path: Path) -> FileStamp:
    """Modification time (ns) and size of the database and of its write-ahead log."""
    return tuple(_file_stamp(file) for file in (path, path.with_name(f"{path.name}-wal")))


def _file_stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
