"""Compaction of the peer log."""

import contextlib
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from agentos.core.protocol.codec import encode
from agentos.core.protocol.events import FORMAT
from agentos.core.protocol.peer_notes import (
    BucketLimitsForgotten,
    BucketUsage,
    CallEnded,
    CallStarted,
    HourUsage,
    KeyRejected,
    Note,
    ProviderFailed,
    ProviderRecovered,
    QuarantineLifted,
    QuotaSharingFound,
)
from agentos.core.ratelimit.limits import CallCost
from agentos.platform_support import host_clock
from agentos.storage.peer_log import NOTES_FILE, FilePeerLog, read_findings, read_notes
from agentos.storage.peer_log_compaction import NoteCompactor

HOUR, DAY, NOW = 3600.0, 86400.0, 1_000_000.0


def kept(*notes: Note, now: float = NOW) -> list[Note]:
    digest = NoteCompactor(now, 0.0)
    for note in notes:
        digest.add(note)
    return digest.notes()


def call(at: float, lease: str, model: str = "pro") -> CallStarted:
    return CallStarted("before", lease, "key", "bucket", model, at, CallCost(3, 4))


def used(notes: list[Note], model: str = "pro") -> int:
    found = [note for note in notes if isinstance(note, BucketUsage) and note.model == model]
    return sum(hour.calls for note in found for hour in note.hours)


# A day's calls.


def test_older_calls_of_the_day_are_counted_by_hour_and_recent_ones_kept() -> None:
    calls = [call(NOW - 10 * number, str(number)) for number in range(3000)]
    found = kept(*calls)
    assert used(found) + sum(isinstance(note, CallStarted) for note in found) == 3000
    (counted,) = [note for note in found if isinstance(note, BucketUsage)]
    assert len(counted.hours) <= 10 and len(found) <= 1 + 2 * 7


def test_repeated_compaction_neither_loses_nor_duplicates_calls() -> None:
    notes: list[Note] = []
    for hour in range(30):
        now = NOW + hour * HOUR
        notes = kept(*notes, *(call(now - 30 * minute, f"{hour} {minute}") for minute in range(9)), now=now)
    # What is of the hour in which the day began may count a little longer, never shorter.
    sent = used(notes) + sum(isinstance(note, CallStarted) for note in notes)
    assert 24 * 9 <= sent <= 25 * 9
    assert kept(*notes, now=now + 2 * DAY) == []


def test_refused_calls_are_not_counted_and_models_are_counted_separately() -> None:
    long_ago = NOW - 500
    found = kept(
        call(long_ago, "one"),
        CallEnded("before", "one", CallCost(1, 1)),
        call(long_ago, "two"),
        CallEnded("before", "two", refused=True),
        call(long_ago, "three"),
        call(long_ago, "four", model="flash"),
    )
    assert used(found) == 2 and used(found, "flash") == 1


def test_the_calls_of_the_day_survive_a_reboot(tmp_path: Path) -> None:
    """They were counted ten seconds ago, when that boot's clock stood at 5000."""
    note = BucketUsage("earlier", "bucket", "pro", (HourUsage(4000.0, 7),), 5000.0)
    stamp = {"format": FORMAT, "boot": "another", "clock": 5000.0, "wall": time.time() - 10}
    (tmp_path / NOTES_FILE).write_text(f"{json.dumps({**encode(note), **stamp})}\n")
    for _ in range(2):
        with contextlib.closing(FilePeerLog(tmp_path, "later")) as log, log.lock_and_read() as notes:
            assert notes is not None
            (found,) = notes
        assert isinstance(found, BucketUsage) and found.hours[0].calls == 7
        assert found.hours[0].at - host_clock() == pytest.approx(-1010.0, abs=2.0)


def test_findings_include_calls_that_are_not_compacted_yet(tmp_path: Path) -> None:
    with contextlib.closing(FilePeerLog(tmp_path, "before")) as log, log.lock_and_read():
        log.append([call(host_clock() - 100 - number, str(number)) for number in range(5)])
    before = (tmp_path / NOTES_FILE).read_bytes()
    assert used(read_findings(tmp_path)) == 5
    assert (tmp_path / NOTES_FILE).read_bytes() == before


# Keys and providers.


def test_a_rejection_is_kept_for_an_hour_unless_the_quarantine_is_lifted() -> None:
    fresh, old = KeyRejected("", "one", "401", NOW - 100), KeyRejected("", "two", "401", NOW - 4000)
    assert kept(fresh, old) == [replace(fresh, run="earlier")]
    assert kept(fresh, QuarantineLifted("", "one")) == []


def test_an_open_circuit_breaker_is_kept_until_its_probe_is_due() -> None:
    ahead = ProviderFailed("", "gemini", 7, NOW + 5, "503", NOW - 3)
    assert kept(replace(ahead, open_until=NOW + 2), ahead) == [replace(ahead, run="earlier")]
    assert kept(ahead, ProviderRecovered("", "gemini")) == []
    assert kept(replace(ahead, open_until=NOW - 1)) == kept(replace(ahead, open_until=0.0)) == []


def test_rejections_older_than_the_credentials_file_are_dropped(tmp_path: Path) -> None:
    folder, file = tmp_path / "quota", tmp_path / "credentials.toml"
    with contextlib.closing(FilePeerLog(folder, "before")) as log:
        with log.lock_and_read():
            log.append([KeyRejected("", "one", "401", host_clock())])
        assert len(read_notes(folder)) == 1
        deadline = time.monotonic() + 10
        draft = tmp_path / "draft"
        while read_notes(folder) and time.monotonic() < deadline:
            # Files are stamped by a clock that moves in steps.
            draft.write_text("")
            os.replace(draft, file)
        with contextlib.closing(FilePeerLog(folder, "beside")) as beside, beside.lock_and_read() as notes:
            assert notes == []


# What was found about keys.


def test_a_shared_quota_is_kept_as_first_found_until_one_of_its_buckets_is_forgotten() -> None:
    first = QuotaSharingFound("before", "bucket-1", "bucket-2", NOW - 90.0, 4)
    again = QuotaSharingFound("later", "bucket-2", "bucket-1", NOW, 7)
    assert kept(first, again) == [replace(first, run="earlier")]
    assert kept(first, BucketLimitsForgotten("", "bucket-3")) == [replace(first, run="earlier")]
    assert kept(first, BucketLimitsForgotten("", "bucket-2")) == []
