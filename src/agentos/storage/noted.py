"""The keys of this host as the notes of its runs tell of them, for whoever runs nothing."""

from pathlib import Path

from agentos.core.credentials import Credential
from agentos.core.neighbours import KeyPardoned, KeyRejected
from agentos.core.pool import Pool
from agentos.storage.hostlog import dead_runs, read_notes


def noted_pool(folder: Path, credentials: list[Credential]) -> Pool:
    """Where every key was rejected a run hopes, and tries them once more; here they are what was said of them."""
    pool, rejected = Pool(credentials), dict[str, str]()
    for note in read_notes(folder):
        pool.hear(note)
        match note:
            case KeyRejected():
                rejected[note.key] = note.reason
            case KeyPardoned():
                rejected.pop(note.key, None)
            case _:
                pass
    for gone in dead_runs(folder, pool.foreign_runs()):
        pool.hear(gone)
    for key in pool.keys:
        if reason := rejected.get(key.credential.fingerprint):
            key.reject(reason)
    return pool
