"""What was sent with the keys of this host just now, and so counts for limits of a minute."""

from pathlib import Path

from agentos.core.neighbours import CallOver, CallSent, Note
from agentos.storage.clock import host_clock
from agentos.storage.digest import RECENT
from agentos.storage.hostlog import NAME, read_note

_TELLING = (b'"type":"CallSent"', b'"type":"CallOver"')


def recent_calls(folder: Path) -> list[Note]:
    """Oldest first, each with its end: one that is under way is taken to end now."""
    sent: list[CallSent] = []
    over: dict[tuple[str, str], CallOver] = {}
    for line in reversed(_lines(folder)):
        match read_note(line):
            case CallOver() as note:
                over[note.run, note.lease] = note
            case CallSent() as note if note.at <= host_clock() - RECENT:
                break
            case CallSent() as note:
                sent.append(note)
            case _:
                pass
    calls = [(note, over.get((note.run, note.lease), CallOver(note.run, note.lease))) for note in sent]
    return [note for call in reversed(calls) for note in call]


def _lines(folder: Path) -> list[bytes]:
    try:
        lines = (folder / NAME).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    return [line for line in lines if any(kind in line for kind in _TELLING)]
