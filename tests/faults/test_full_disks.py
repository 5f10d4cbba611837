"""A disk that is full: the work waits for space, and nothing is corrupt."""

import contextlib
import shutil
import sqlite3
import time
from pathlib import Path

import pytest

from tests.chaos.reader import EVIDENCE, flaw
from tests.scenarios.harness import RunHarness, wait_until

from .disks import SmallDisk, small_disk

PAUSED = "[COORDINATOR] No space left on the disk of "
RESUMED = "[COORDINATOR] Disk space is available again after "
WARNING = "[COORDINATOR] Cannot write log files (No space left on device). The run continues without them."


def outside(disk: SmallDisk, harness: RunHarness, pattern: str) -> list[str]:
    return sorted(path.name for path in disk.seen_from_outside.glob(pattern))


def soundness(disk: SmallDisk, copies: Path) -> set[str]:
    """What SQLite says of each checkpoint, as it lies there now."""
    found = set()
    for folder in disk.seen_from_outside.glob("checkpoints/*"):
        shutil.copytree(folder, copies / folder.name)
    for database in copies.glob("*/*.db"):
        with contextlib.closing(sqlite3.connect(database)) as opened:
            found.add(str(opened.execute("PRAGMA quick_check").fetchone()[0]))
    return found


@pytest.mark.slow
def test_a_full_home_pauses_the_run_and_space_lets_it_go_on(harness: RunHarness) -> None:
    harness.issues(40, 41, 42, 43)
    server = harness.server("--latency", "0.3,0.3")
    with small_disk(harness.home) as disk:
        running = disk.start(harness, "--all", "--parallel", 2)
        wait_until(lambda: len(server.calls()) >= 2)
        assert disk.fill() > 0
        running.wait_for(PAUSED)
        time.sleep(1.5)
        assert soundness(disk, harness.root / "copies") == {"ok"}
        disk.free()
        done = running.wait()
        assert done.code == 0, done.out + done.err
        assert done.out.count(PAUSED) == done.out.count(RESUMED) >= 1
        assert "Traceback" not in done.out + done.err and "attempt 2" not in done.out
        assert not outside(disk, harness, "checkpoints/*/*")
    assert all(flaw(harness.document(number).read_bytes(), EVIDENCE) is None for number in (40, 41, 42, 43))
    assert len(server.answered()) == 8 and not server.repeated_prompts()


def test_a_full_project_pauses_the_run_and_no_document_is_half_written(harness: RunHarness) -> None:
    harness.issues(40, 41)
    server = harness.server("--latency", "0.3,0.3")
    with small_disk(harness.project) as disk:
        running = disk.start(harness, "--all", "--parallel", 2)
        wait_until(lambda: len(server.calls()) >= 2)
        disk.fill()
        running.wait_for(PAUSED)
        assert not outside(disk, harness, "docs/lld/*/*")
        disk.free()
        done = running.wait()
        assert done.code == 0, done.out + done.err
        found = sorted(disk.seen_from_outside.glob("docs/lld/active/*.md"))
        assert [path.name for path in found] == ["LLD-040.md", "LLD-041.md"]
        assert all(flaw(path.read_bytes(), EVIDENCE) is None for path in found)
        assert not list(disk.seen_from_outside.rglob(".agentos-tmp-*"))
    assert len(server.answered()) == 4


@pytest.mark.slow
def test_a_run_that_waits_for_space_can_be_stopped_and_goes_on_later(harness: RunHarness) -> None:
    harness.issues(40, 41)
    server = harness.server("--latency", "0.2,0.2")
    with small_disk(harness.home) as disk:
        running = disk.start(harness, "--all", "--parallel", 2)
        wait_until(lambda: len(server.calls()) >= 1)
        disk.fill()
        running.wait_for(PAUSED)
        began = time.monotonic()
        running.process.terminate()
        stopped = running.wait()
        assert stopped.code == 143 and time.monotonic() - began < 5, stopped.out
        assert "Traceback" not in stopped.out + stopped.err
        disk.free()
        done = disk.start(harness, "--all", "--parallel", 2).wait()
        assert done.code == 0, done.out
    assert harness.document(40).exists() and harness.document(41).exists()


@pytest.mark.slow
def test_a_home_that_is_full_from_the_beginning_is_refused_with_the_cure(harness: RunHarness) -> None:
    harness.issue(42)
    server = harness.server()
    with small_disk(harness.home) as disk:
        disk.fill()
        done = disk.start(harness, "--all").wait()
        assert done.code == 3 and "No space left" in done.err and "Traceback" not in done.err, done.err
        disk.free()
        assert disk.start(harness, "--all").wait().code == 0
    assert len(server.calls()) == 2


@pytest.mark.slow
def test_a_disk_that_is_full_for_logs_alone_costs_one_warning(harness: RunHarness) -> None:
    harness.issues(40, 41, 42)
    server = harness.server("--latency", "0.2,0.2")
    with small_disk(harness.home / "logs", "1m") as disk:
        harness.home.chmod(0o700)
        running = disk.start(harness, "--all", "--parallel", 2)
        wait_until(lambda: len(server.calls()) >= 1)
        disk.fill()
        done = running.wait()
        assert done.code == 0, done.out + done.err
        assert done.out.count(WARNING) == 1 and "Pausing" not in done.out and "Traceback" not in done.err
    assert all(harness.document(number).exists() for number in (40, 41, 42))
    assert len(server.answered()) == 6
