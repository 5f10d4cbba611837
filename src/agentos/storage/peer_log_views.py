"""The keys of this host as the notes of its runs tell of them, for whoever runs nothing."""

from pathlib import Path

from agentos.core.protocol.codec import type_marker
from agentos.core.protocol.peer_notes import CallEnded, CallStarted, KeyRejected, Note, QuarantineLifted
from agentos.core.quota.credentials import Credential
from agentos.core.quota.pool import Pool
from agentos.storage.clock import host_clock
from agentos.storage.peer_log import NAME, dead_runs, read_note, read_notes
from agentos.storage.peer_log_compaction import RECENT


def pool_from_notes(folder: Path, credentials: list[Credential]) -> Pool:
    """Where every key was rejected a run hopes, and tries them once more; here they are what was said of them."""
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
    for gone in dead_runs(folder, pool.peer_runs()):
        pool.apply_note(gone)
    for key in pool.keys:
        if reason := rejected.get(key.credential.fingerprint):
            key.set_quarantine(reason)
    return pool


_TELLING = (type_marker(CallStarted), type_marker(CallEnded))


def recent_calls(folder: Path) -> list[Note]:
    """Oldest first, each with its end: one that is under way is taken to end now."""
    sent: list[CallStarted] = []
    over: dict[tuple[str, str], CallEnded] = {}
    for line in reversed(_lines(folder)):
        match read_note(line):
            case CallEnded() as note:
                over[note.run, note.lease] = note
            case CallStarted() as note if note.at <= host_clock() - RECENT:
                break
            case CallStarted() as note:
                sent.append(note)
            case _:
                pass
    calls = [(note, over.get((note.run, note.lease), CallEnded(note.run, note.lease))) for note in sent]
    return [note for call in reversed(calls) for note in call]


def _lines(folder: Path) -> list[bytes]:
    try:
        lines = (folder / NAME).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    return [line for line in lines if any(kind in line for kind in _TELLING)]
