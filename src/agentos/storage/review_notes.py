"""Parkings and decisions, kept among the notes of an item's checkpoint."""

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
    """The name of the decision at one gate: what was decided at another can never stand for it."""
    return f"decision {number}"


def _edit_note(number: int) -> str:
    return f"edit {number}"


def read_parked(path: Path) -> ReviewState | None:
    """The review state in an item's checkpoint; read without writing anything."""
    return review_state(read_notes(path))


def review_state(notes: Mapping[str, str]) -> ReviewState | None:
    """The review state among a checkpoint's notes: how the item is parked, or was last."""
    try:
        parking: ParkedItem = unpack(ParkedItem, json.loads(notes[PARKING]))
        kept = notes.get(decision_note(parking.request.number))
        decision: ReviewDecision | None = None if kept is None else unpack(ReviewDecision, json.loads(kept))
    except (KeyError, ValueError, CodecError):
        return None
    return ReviewState(parking, notes.get(_edit_note(parking.request.number)), decision)


def write_decision(path: Path, number: int, decision: ReviewDecision) -> None:
    """On disk when this returns. Only under the item's lock, and only while it is undecided."""
    _write(path, decision_note(number), json.dumps(pack(decision)))


def write_edit(path: Path, number: int, draft: str) -> None:
    """Keeps an edited draft until the decision is made. Only under the item's lock."""
    _write(path, _edit_note(number), draft)


def _write(path: Path, name: str, text: str) -> None:
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=10)) as database:
        database.execute("PRAGMA synchronous=FULL")
        with database:
            database.execute("INSERT OR REPLACE INTO agentos_notes VALUES (?, ?)", (name, text))
