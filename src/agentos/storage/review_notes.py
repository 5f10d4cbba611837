"""Parked items and review decisions, stored as notes in an item's checkpoint."""

import contextlib
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from agentos.core.planning.gates import ParkedItem, ReviewDecision, ReviewState
from agentos.core.protocol.codec import CodecError, pack, unpack
from agentos.storage.checkpoints import read_notes

PARKING = "parking"


def decision_note(number: int) -> str:
    """The note's name for one gate, so that a decision can never be mistaken for that of another gate."""
    return f"decision {number}"


def _edit_note(number: int) -> str:
    return f"edit {number}"


def read_parked(path: Path) -> ReviewState | None:
    """How the item with this checkpoint is parked, or was last parked. Writes nothing."""
    return review_state(read_notes(path))


def review_state(notes: Mapping[str, str]) -> ReviewState | None:
    """How the item with these checkpoint notes is parked, or was last parked."""
    try:
        parking: ParkedItem = unpack(ParkedItem, json.loads(notes[PARKING]))
        text = notes.get(decision_note(parking.request.number))
        decision: ReviewDecision | None = None if text is None else unpack(ReviewDecision, json.loads(text))
    except (KeyError, ValueError, CodecError):
        return None
    return ReviewState(parking, notes.get(_edit_note(parking.request.number)), decision)


def write_decision(path: Path, number: int, decision: ReviewDecision) -> None:
    """Stores a decision durably. Call it only under the item's lock, and only while the gate is undecided."""
    _write(path, decision_note(number), json.dumps(pack(decision)))


def write_edit(path: Path, number: int, draft: str) -> None:
    """Stores an edited draft until the decision is made. Call it only under the item's lock."""
    _write(path, _edit_note(number), draft)


def _write(path: Path, name: str, text: str) -> None:
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=10)) as database:
        database.execute("PRAGMA synchronous=FULL")
        with database:
            database.execute("INSERT OR REPLACE INTO agentos_notes VALUES (?, ?)", (name, text))
