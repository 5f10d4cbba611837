"""The peer log, between real processes."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentos.core.protocol.codec import encode
from agentos.core.protocol.events import FORMAT
from agentos.core.protocol.peer_notes import (
    BucketLimitsLearned,
    CallEnded,
    CallStarted,
    CooldownCleared,
    CooldownStarted,
    Note,
    RunGone,
)
from agentos.core.quota.credentials import Credential
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.limits import (
    CallCost,
    Counting,
    Dimension,
    LearnedLimit,
    LearnedLimits,
    LimitSeen,
    Rate,
)
from agentos.core.text.secrets import Secret
from agentos.platform_support import boot_id, host_clock
from agentos.storage.peer_log import NOTES_FILE, READ_SIZE, FilePeerLog, read_notes
from agentos.storage.peer_log_views import other_version_warning

LIVE = """
import os, subprocess, sys
from pathlib import Path
from agentos.core.protocol.peer_notes import CallEnded
from agentos.storage.peer_log import FilePeerLog
log = FilePeerLog(Path(sys.argv[1]), sys.argv[2])
if sys.argv[3:]:
    command = ["tail", "-f", "/dev/null", f"--pid={os.getppid()}"]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(log.liveness_fd,))
    print(child.pid, flush=True)
else:
    print("there", flush=True)
for line in sys.stdin:
    with log.lock_and_read() as notes:
        log.append([CallEnded("", line.strip())])
    print(",".join(f"{note.run}:{note.lease}" for note in notes), flush=True)
log.close()
"""
LACK = """
import os, resource, sys
from pathlib import Path
from agentos.core.protocol.peer_notes import CallEnded
from agentos.storage.peer_log import FilePeerLog
log = FilePeerLog(Path(sys.argv[1]), "here")
resource.setrlimit(resource.RLIMIT_NOFILE, (os.dup(0), 4096))
with log.lock_and_read() as notes:
    print(len(notes), log.append([CallEnded("", "lease-9")]), log.gone({"there"}))
"""
LEARNED = LearnedLimits((LearnedLimit(Dimension.REQUESTS, Counting.SLIDING, 10.0, 60.0),), refusals=2)
SENT = CallStarted("", "lease-1", "fingerprint", "bucket", "pro", 5.0, CallCost(3, 4))


class PeerProcess:
    """Another process with its own run."""

    def __init__(self, folder: Path, run: str, *more: str) -> None:
        self.run = run
        self.process = subprocess.Popen(
            [sys.executable, "-c", LIVE, str(folder), run, *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.first = self._line()

    def append(self, lease: str) -> list[str]:
        """Appends a note; returns the notes that the process read before."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{lease}\n")
        self.process.stdin.flush()
        return [part for part in self._line().split(",") if part]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@contextlib.contextmanager
def peer_process(folder: Path, run: str, *more: str) -> Iterator[PeerProcess]:
    with contextlib.closing(PeerProcess(folder, run, *more)) as found:
        yield found


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FilePeerLog]:
    with contextlib.closing(FilePeerLog(tmp_path, "here")) as found:
        yield found


def read(log: FilePeerLog) -> list[Note]:
    with log.lock_and_read() as notes:
        assert notes is not None
        return notes


def append_notes(log: FilePeerLog, *notes: Note) -> None:
    with log.lock_and_read():
        log.append(list(notes))


def notes_of_later_run(folder: Path) -> list[Note]:
    """The notes that a later run reads."""
    with contextlib.closing(FilePeerLog(folder, "later")) as log:
        return read(log)


# Reading each other's notes


def test_two_processes_read_each_others_notes_once_and_in_order(tmp_path: Path, log: FilePeerLog) -> None:
    with peer_process(tmp_path, "there") as there:
        for number in range(3):
            assert there.append(f"lease-{number}") == ([] if number == 0 else [f"here:ours-{number - 1}"])
            assert read(log) == [CallEnded("there", f"lease-{number}")]
            append_notes(log, CallEnded("", f"ours-{number}"))
        assert read(log) == []


def test_a_note_is_read_as_it_was_written_with_its_run(tmp_path: Path, log: FilePeerLog) -> None:
    notes: list[Note] = [
        SENT,
        CallEnded("", "lease-1", CallCost(1, 2)),
        CooldownStarted("", "bucket", "pro", 6.5, 0.0, "429"),
        CooldownCleared("", "bucket", "pro"),
        BucketLimitsLearned("", "bucket", "pro", (LimitSeen(Dimension.INPUT, 9.0),), LEARNED),
    ]
    append_notes(log, *notes)
    with contextlib.closing(FilePeerLog(tmp_path, "second")) as second:
        assert read(second) == [replace(note, run="here") for note in notes]
    assert read_notes(tmp_path) == [replace(note, run="here") for note in notes]


def test_concurrent_processes_neither_lose_nor_corrupt_notes(tmp_path: Path, log: FilePeerLog) -> None:
    with contextlib.ExitStack() as stack:
        names = ("one", "two", "three")
        others = [stack.enter_context(peer_process(tmp_path, name)) for name in names]
        for number in range(20):
            for other in others:
                assert other.process.stdin is not None
                other.process.stdin.write(f"{number}\n")
                other.process.stdin.flush()
        for other in others:
            for _ in range(20):
                other._line()
    found = [note for note in read(log) if isinstance(note, CallEnded)]
    for name in names:
        assert [note.lease for note in found if note.run == name] == [str(number) for number in range(20)]


def test_the_files_are_accessible_to_their_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with contextlib.closing(FilePeerLog(tmp_path / "quota", "here")) as log:
            append_notes(log, SENT)
        notes_of_later_run(tmp_path / "quota")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "quota").iterdir()}
    assert set(modes.values()) == {0o600} and NOTES_FILE in modes


# Living and dying.


def test_a_killed_run_is_reported_as_gone(tmp_path: Path, log: FilePeerLog) -> None:
    with peer_process(tmp_path, "there") as there:
        assert log.gone({"there"}) == []
        there.kill()
        assert log.gone({"there"}) == [RunGone("there")]


def test_a_run_with_a_living_worker_is_not_gone(tmp_path: Path, log: FilePeerLog) -> None:
    with peer_process(tmp_path, "there", "with a child") as there:
        child = int(there.first)
        descriptor = os.pidfd_open(child)
        there.kill()
        assert log.gone({"there"}) == []
        os.kill(child, signal.SIGKILL)
        wait_for_the_end(descriptor)
        assert log.gone({"there"}) == [RunGone("there")]


def wait_for_the_end(descriptor: int) -> None:
    """Of the process behind the descriptor."""
    assert select.select([descriptor], [], [], 5.0)[0]
    os.close(descriptor)


def test_a_closed_run_is_gone_and_leaves_no_lock_file(tmp_path: Path, log: FilePeerLog) -> None:
    FilePeerLog(tmp_path, "there").close()
    assert log.gone({"there"}) == [RunGone("there")]
    assert [path.name for path in tmp_path.glob("run-*")] == ["run-here.lock"]


def test_a_process_suspended_while_holding_the_lock_neither_delays_others_nor_loses_exclusion(
    tmp_path: Path, log: FilePeerLog
) -> None:
    with contextlib.closing(FilePeerLog(tmp_path, "there")) as there, there.lock_and_read():
        began = time.monotonic()
        for number in range(50):
            with log.lock_and_read() as notes:
                assert notes is None and not log.append([CallEnded("", f"late-{number}")])
        assert time.monotonic() - began < 5.0, "only the first is waited for"
        assert there.append([CallEnded("", "first")])
    assert read(log) == [CallEnded("there", "first")]
    append_notes(log, CallEnded("", "last"))
    leases = [note.lease for note in read_notes(tmp_path) if isinstance(note, CallEnded)]
    assert leases == ["first", *(f"late-{number}" for number in range(50)), "last"]


def test_a_run_that_starts_during_a_suspended_compaction_loses_no_note(
    tmp_path: Path,
) -> None:
    with contextlib.closing(FilePeerLog(tmp_path, "there")) as there, contextlib.ExitStack() as stack:
        with there.lock_and_read():
            log = stack.enter_context(contextlib.closing(FilePeerLog(tmp_path, "here")))
            # What the other process does when resumed: it saw no peers, and replaces the file with a shorter one.
            there._compact()
        append_notes(log, SENT)
        assert read_notes(tmp_path) == [replace(SENT, run="here")]


LOOK = """
import os, sys
from pathlib import Path
from agentos.storage.peer_log import FilePeerLog
log = FilePeerLog(Path(sys.argv[1]), "looker")
parent = os.getppid()
print("there", flush=True)
while os.getppid() == parent:
    log.gone({"here"})
"""


def test_a_starting_run_is_never_mistaken_for_a_dead_one(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LOOK, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as looker:
        try:
            assert looker.stdout and looker.stdout.readline()
            for _ in range(300):
                with contextlib.closing(FilePeerLog(tmp_path, "here")):
                    for _ in range(5):
                        assert (tmp_path / "run-here.lock").exists()
        finally:
            looker.kill()


# What cannot be read.


def test_without_free_descriptors_notes_still_work_and_no_run_is_declared_dead(
    tmp_path: Path,
) -> None:
    with peer_process(tmp_path, "there") as other:
        other.append("lease-1")
        done = subprocess.run(
            [sys.executable, "-c", LACK, tmp_path], capture_output=True, text=True, check=True
        )
        assert done.stdout == "1 True []\n"
        assert other.append("lease-2") == ["here:lease-9"]


def test_a_truncated_line_is_skipped_and_does_not_swallow_the_next(tmp_path: Path, log: FilePeerLog) -> None:
    with open(tmp_path / NOTES_FILE, "a") as file:
        file.write('{"type":"call_ended","run":"dead","lea')
    assert read(log) == []
    with peer_process(tmp_path, "there") as there:
        there.append("lease-1")
        there.append("lease-2")
    assert read(log) == [CallEnded("there", "lease-1"), CallEnded("there", "lease-2")]


@pytest.mark.parametrize("line", ["", "nothing", "[]", '{"type":"Unheard"}', '{"type":"run_gone","run":3}'])
def test_an_invalid_line_is_skipped(tmp_path: Path, log: FilePeerLog, line: str) -> None:
    with open(tmp_path / NOTES_FILE, "a") as file:
        file.write(f"{line}\n")
    with peer_process(tmp_path, "there") as there:
        there.append("lease-1")
    assert read(log) == [CallEnded("there", "lease-1")]


def test_times_from_an_earlier_boot_are_converted_to_the_current_one(tmp_path: Path) -> None:
    """It was written ten seconds ago, when that boot's clock stood at 5000."""
    note = CooldownStarted("there", "bucket", "pro", 5100.0, 5600.0, "429", 4999.0)
    stamp = {"format": FORMAT, "boot": "another", "clock": 5000.0, "wall": time.time() - 10}
    here = json.dumps({**encode(SENT), "format": FORMAT, "boot": boot_id(), "clock": 5.0, "wall": 0.0})
    (tmp_path / NOTES_FILE).write_text(f"{json.dumps({**encode(note), **stamp})}\n{here}\n")
    shifted, same = read_notes(tmp_path)
    assert isinstance(shifted, CooldownStarted)
    assert shifted.until - host_clock() == pytest.approx(90.0, abs=1.0)
    assert shifted.exhausted_until - host_clock() == pytest.approx(590.0, abs=1.0)
    assert shifted.at - host_clock() == pytest.approx(-11.0, abs=1.0)
    assert same == SENT


def test_a_cooldown_from_an_earlier_boot_without_day_quota_stays_without(tmp_path: Path) -> None:
    note = CooldownStarted("there", "bucket", "pro", 5100.0, 0.0, "429")
    stamp = {"format": FORMAT, "boot": "another", "clock": 5000.0, "wall": time.time() - 10}
    (tmp_path / NOTES_FILE).write_text(f"{json.dumps({**encode(note), **stamp})}\n")
    (shifted,) = read_notes(tmp_path)
    assert isinstance(shifted, CooldownStarted) and shifted.exhausted_until <= 0.0


# Growing and being shortened.


def ahead(model: str = "pro", seconds: float = 100.0) -> CooldownStarted:
    return CooldownStarted("", "bucket", model, host_clock() + seconds, 0.0, "429")


def test_compaction_keeps_cooldowns_and_learned_limits_only(tmp_path: Path) -> None:
    learnt = BucketLimitsLearned("", "bucket", "pro", learned=LEARNED)
    rest, over = ahead(), ahead("flash", -1.0)
    with contextlib.closing(FilePeerLog(tmp_path, "before")) as log:
        append_notes(
            log, replace(SENT, at=host_clock() - 90000), CallEnded("", "lease-1"), rest, over, learnt
        )
    assert notes_of_later_run(tmp_path) == [replace(learnt, run="earlier"), replace(rest, run="earlier")]
    assert len((tmp_path / NOTES_FILE).read_text().splitlines()) == 2


def test_the_calls_of_the_last_minute_count_for_the_next_run(tmp_path: Path) -> None:
    credential = Credential(
        "key-1", "gemini", Secret("s"), concurrency=9, rates=((Dimension.TOKENS, Rate(100, 60.0)),)
    )
    call = CallStarted(
        "", "lease-1", credential.fingerprint, credential.quota, "pro", host_clock() - 5, CallCost(50, 40)
    )
    with contextlib.closing(FilePeerLog(tmp_path, "before")) as log:
        append_notes(log, replace(call, lease="long ago", at=call.at - 90), CallEnded("", "long ago"))
        append_notes(log, call, CallEnded("", "lease-1", CallCost(20, 5)), replace(call, lease="unanswered"))
    for _ in range(2):
        pool = Pool([credential])
        for note in notes_of_later_run(tmp_path):
            pool.apply_note(note)
        assert pool.bucket("key-1", "pro").limiter.used(Dimension.TOKENS, host_clock()) == 25 + 90
        assert pool.peer_runs() == set(), "nobody holds a slot"


def test_nothing_is_compacted_while_another_run_is_alive(tmp_path: Path, log: FilePeerLog) -> None:
    append_notes(log, SENT, CallEnded("", "lease-1"))
    with contextlib.closing(FilePeerLog(tmp_path, "there")) as there:
        assert len(read(there)) == 2


def test_all_notes_are_read_before_a_decision_however_many(tmp_path: Path, log: FilePeerLog) -> None:
    append_notes(log, *(replace(SENT, lease=f"lease-{number}") for number in range(9000)))
    assert (tmp_path / NOTES_FILE).stat().st_size > READ_SIZE
    with contextlib.closing(FilePeerLog(tmp_path, "there")) as there:
        assert len(read(there)) == 9000


def test_a_cleared_cooldown_is_not_kept(tmp_path: Path) -> None:
    with contextlib.closing(FilePeerLog(tmp_path, "before")) as log:
        append_notes(log, ahead(), ahead("flash"), CooldownCleared("", "bucket", "pro"))
    (kept,) = notes_of_later_run(tmp_path)
    assert isinstance(kept, CooldownStarted) and kept.model == "flash"


def test_the_newest_of_each_learned_limit_is_kept(tmp_path: Path) -> None:
    notes = [
        BucketLimitsLearned("", "bucket", "pro", (LimitSeen(Dimension.REQUESTS, 5.0),)),
        BucketLimitsLearned("", "bucket", "pro", (LimitSeen(Dimension.INPUT, 900.0),)),
        BucketLimitsLearned("", "bucket", "pro", (LimitSeen(Dimension.REQUESTS, 10.0),)),
        BucketLimitsLearned("", "bucket", "flash", learned=LEARNED),
    ]
    with contextlib.closing(FilePeerLog(tmp_path, "before")) as log:
        append_notes(log, *notes)
    found = notes_of_later_run(tmp_path)
    assert found == notes_of_later_run(tmp_path), "however often it is shortened"
    limits = {
        (note.model, limit.dimension): limit.amount
        for note in found
        if isinstance(note, BucketLimitsLearned)
        for limit in note.limits
    }
    assert limits == {("pro", Dimension.REQUESTS): 10.0, ("pro", Dimension.INPUT): 900.0}
    assert [note.learned for note in found if isinstance(note, BucketLimitsLearned) and note.learned] == [
        LEARNED
    ]


def test_a_killed_run_does_not_prevent_compaction(tmp_path: Path) -> None:
    with peer_process(tmp_path, "there") as there:
        there.append("lease-1")
        there.kill()
    assert notes_of_later_run(tmp_path) == []
    assert not (tmp_path / "run-there.lock").exists()


OLD_NOTE = {"type": "CallSent", "run": "old", "lease": "l-1", "boot": "b", "clock": 1.0, "wall": 1.0}
OTHER_NOTE = {"type": "run_gone", "run": "old", "format": FORMAT + 1, "boot": "b", "clock": 1.0, "wall": 1.0}


@pytest.mark.parametrize("record", [OLD_NOTE, OTHER_NOTE])
def test_notes_of_another_version_are_announced_ignored_and_dropped(
    tmp_path: Path, record: dict[str, object]
) -> None:
    (tmp_path / NOTES_FILE).write_text(f"{json.dumps(record)}\n")
    warning = other_version_warning(tmp_path)
    assert warning and str(tmp_path / NOTES_FILE) in warning and "\n" not in warning
    assert read_notes(tmp_path) == []
    with contextlib.closing(FilePeerLog(tmp_path, "here")) as log:
        assert read(log) == []
    assert (tmp_path / NOTES_FILE).read_text() == "" and other_version_warning(tmp_path) is None


def test_notes_of_this_version_are_not_announced_as_foreign(tmp_path: Path, log: FilePeerLog) -> None:
    assert other_version_warning(tmp_path) is None
    with log.lock_and_read():
        log.append([CallEnded("here", "lease-1")])
    assert other_version_warning(tmp_path) is None
