"""A full disk: the run waits for space, and nothing is corrupted."""

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


def names_on(disk: SmallDisk, pattern: str) -> list[str]:
    return sorted(path.name for path in disk.host_path.glob(pattern))


def check_databases(disk: SmallDisk, copies: Path) -> set[str]:
    """The results of SQLite's quick check over copies of all checkpoints."""
    results = set()
    for folder in disk.host_path.glob("checkpoints/*"):
        shutil.copytree(folder, copies / folder.name)
    for database in copies.glob("*/*.db"):
        with contextlib.closing(sqlite3.connect(database)) as connection:
            results.add(str(connection.execute("PRAGMA quick_check").fetchone()[0]))
    return results


@pytest.mark.slow
def test_a_full_home_pauses_the_run_until_space_is_freed(harness: RunHarness) -> None:
    harness.issues(40, 41, 42, 43)
    server = harness.server("--latency", "0.3,0.3")
    with small_disk(harness.home) as disk:
        running = disk.start(harness, "--all", "--parallel", 2)
        wait_until(lambda: len(server.calls()) >= 2)
        assert disk.fill() > 0
        running.wait_for(PAUSED)
        time.sleep(1.5)
        assert check_databases(disk, harness.root / "copies") == {"ok"}
        disk.free()
        done = running.wait()
        assert done.code == 0, done.out + done.err
        assert done.out.count(PAUSED) == done.out.count(RESUMED) >= 1
        assert "Traceback" not in done.out + done.err and "attempt 2" not in done.out
        assert not names_on(disk, "checkpoints/*/*")
    assert all(flaw(harness.document(number).read_bytes(), EVIDENCE) is None for number in (40, 41, 42, 43))
    assert len(server.answered()) == 8 and not server.repeated_prompts()


@pytest.mark.slow
def test_a_full_project_pauses_the_run_and_leaves_no_partial_document(harness: RunHarness) -> None:
    harness.issues(40, 41)
    server = harness.server("--latency", "0.3,0.3")
    with small_disk(harness.project) as disk:
        running = disk.start(harness, "--all", "--parallel", 2)
        wait_until(lambda: len(server.calls()) >= 2)
        disk.fill()
        running.wait_for(PAUSED)
        assert not names_on(disk, "docs/lld/*/*")
        disk.free()
        done = running.wait()
        assert done.code == 0, done.out + done.err
        documents = sorted(disk.host_path.glob("docs/lld/active/*.md"))
        assert [path.name for path in documents] == ["LLD-040.md", "LLD-041.md"]
        assert all(flaw(path.read_bytes(), EVIDENCE) is None for path in documents)
        assert not list(disk.host_path.rglob(".agentos-tmp-*"))
    assert len(server.answered()) == 4


@pytest.mark.slow
def test_a_run_waiting_for_disk_space_can_be_stopped_and_resumed(harness: RunHarness) -> None:
    harness.issues(40, 41)
    server = harness.server("--latency", "0.2,0.2")
    with small_disk(harness.home) as disk:
        running = disk.start(harness, "--all", "--parallel", 2)
        wait_until(lambda: len(server.calls()) >= 1)
        disk.fill()
        running.wait_for(PAUSED)
        started = time.monotonic()
        running.process.terminate()
        stopped = running.wait()
        assert stopped.code == 143 and time.monotonic() - started < 5, stopped.out
        assert "Traceback" not in stopped.out + stopped.err
        disk.free()
        done = disk.start(harness, "--all", "--parallel", 2).wait()
        assert done.code == 0, done.out
    assert harness.document(40).exists() and harness.document(41).exists()


@pytest.mark.slow
def test_a_home_that_is_already_full_is_refused_with_a_hint(harness: RunHarness) -> None:
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
def test_a_full_log_disk_causes_one_warning_only(harness: RunHarness) -> None:
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
