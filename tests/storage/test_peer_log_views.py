"""Read-only views of the peer log."""

import contextlib
from pathlib import Path

from agentos.core.protocol.peer_notes import CallEnded, CallStarted, CooldownCleared, Note
from agentos.core.ratelimit.limits import CallCost
from agentos.platform_support import host_clock
from agentos.storage.peer_log import FilePeerLog
from agentos.storage.peer_log_compaction import RECENT
from agentos.storage.peer_log_views import recent_calls


def sent(lease: str, seconds_ago: float) -> CallStarted:
    return CallStarted("", lease, "fingerprint", "bucket", "pro", host_clock() - seconds_ago, CallCost(3, 4))


def append_notes(folder: Path, *notes: Note) -> None:
    with contextlib.closing(FilePeerLog(folder, "run-1")) as log, log.lock_and_read():
        assert log.append(list(notes))


def test_recent_calls_are_those_of_the_last_minute_oldest_first(tmp_path: Path) -> None:
    used = CallCost(30, 40)
    append_notes(
        tmp_path / "quota",
        sent("long-ago", RECENT + 5),
        CallEnded("", "long-ago", used),
        sent("first", 20),
        sent("second", 10),
        CooldownCleared("", "bucket", "pro"),
        CallEnded("", "first", used),
    )
    found = recent_calls(tmp_path / "quota")
    calls = [note for note in found if isinstance(note, CallStarted)]
    ends = [note for note in found if isinstance(note, CallEnded)]
    assert [note.lease for note in calls] == [note.lease for note in ends] == ["first", "second"]
    assert [note.used for note in ends] == [used, CallCost()], "one call is still in progress"


def test_without_notes_there_are_no_recent_calls(tmp_path: Path) -> None:
    assert recent_calls(tmp_path / "quota") == []
