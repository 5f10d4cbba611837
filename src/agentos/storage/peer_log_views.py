"""Read-only views of the peer log, for commands outside of runs."""

import json
from pathlib import Path

from agentos.core.protocol.codec import type_marker
from agentos.core.protocol.events import FORMAT
from agentos.core.protocol.peer_notes import (
    CallEnded,
    CallStarted,
    KeyRejected,
    Note,
    QuarantineLifted,
    RunGone,
)
from agentos.core.quota.credentials import Credential
from agentos.core.quota.pool import Pool
from agentos.platform_support import host_clock
from agentos.regular_files import open_regular
from agentos.storage.locks import is_locked
from agentos.storage.peer_log import NOTES_FILE, liveness_path, read_note, read_notes
from agentos.storage.peer_log_compaction import RECENT

_CALL_TYPES = (type_marker(CallStarted), type_marker(CallEnded))


def other_version_warning(folder: Path) -> str | None:
    """A warning if another version of agentos wrote the notes, which are then ignored."""
    try:
        with open(open_regular(folder / NOTES_FILE), "rb") as file:
            record = json.loads(file.readline() or b"null")
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    if isinstance(record, dict) and "boot" in record and record.get("format") != FORMAT:
        return (
            f"ignoring {folder / NOTES_FILE}: another version of agentos wrote it. "
            "Limits and cooldowns of the keys are learned again"
        )
    return None


def pool_from_notes(folder: Path, credentials: list[Credential]) -> Pool:
    """The pool as the notes describe it.

    A run whose keys are all rejected tries each of them once more. Here they remain rejected, as the notes say.
    """
    pool, rejected = Pool(credentials), dict[str, str]()
    for note in read_notes(folder):
        pool.apply_note(note)
        match note:
            case KeyRejected():
                rejected[note.key] = note.reason
            case QuarantineLifted():
                rejected.pop(note.key, None)
            case _:
                pass
    for run in pool.peer_runs():
        if not is_locked(liveness_path(folder, run)):
            pool.apply_note(RunGone(run))
    for key in pool.keys:
        if reason := rejected.get(key.credential.fingerprint):
            key.set_quarantine(reason)
    return pool


def recent_calls(folder: Path) -> list[Note]:
    """The calls of the last minute, oldest first, each with its end. A call still in progress is assumed to end now."""
    started: list[CallStarted] = []
    ended: dict[tuple[str, str], CallEnded] = {}
    for line in reversed(_call_lines(folder)):
        match read_note(line):
            case CallEnded() as note:
                ended[note.run, note.lease] = note
            case CallStarted() as note if note.at <= host_clock() - RECENT:
                break
            case CallStarted() as note:
                started.append(note)
            case _:
                pass
    calls = [(note, ended.get((note.run, note.lease), CallEnded(note.run, note.lease))) for note in started]
    return [note for call in reversed(calls) for note in call]


def _call_lines(folder: Path) -> list[bytes]:
    try:
        with open(open_regular(folder / NOTES_FILE), "rb") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return []
    return [line for line in lines if any(kind in line for kind in _CALL_TYPES)]
