"""A disk that is full: the work waits for space, and nothing is corrupt."""

import contextlib
import shutil
import sqlite3
import time
from pathlib import Path

from tests.chaos.reader import EVIDENCE, flaw
from tests.scenarios.stage import Stage, until

from .disks import SmallDisk, small_disk

PAUSED = "[COORDINATOR] No space left on the disk of "
RESUMED = "[COORDINATOR] There is space again after "
WARNING = "[COORDINATOR] Log files cannot be written (No space left on device). Work goes on without them."


def outside(disk: SmallDisk, stage: Stage, pattern: str) -> list[str]:
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


def test_a_full_home_pauses_the_run_and_space_lets_it_go_on(stage: Stage) -> None:
    stage.issues(40, 41, 42, 43)
    witness = stage.server("--latency", "0.3,0.3")
    with small_disk(stage.home) as disk:
        running = disk.start(stage, "--all", "--parallel", 2)
        until(lambda: len(witness.calls()) >= 2)
        assert disk.fill() > 0
        running.says(PAUSED)
        time.sleep(1.5)
        assert soundness(disk, stage.root / "copies") == {"ok"}
        disk.free()
        done = running.end()
        assert done.code == 0, done.out + done.err
        assert done.out.count(PAUSED) == done.out.count(RESUMED) >= 1
        assert "Traceback" not in done.out + done.err and "attempt 2" not in done.out
        assert not outside(disk, stage, "checkpoints/*/*")
    assert all(flaw(stage.document(number).read_bytes(), EVIDENCE) is None for number in (40, 41, 42, 43))
    assert len(witness.answered()) == 8 and not witness.asked_twice()


def test_a_full_project_pauses_the_run_and_no_document_is_half_written(stage: Stage) -> None:
    stage.issues(40, 41)
    witness = stage.server("--latency", "0.3,0.3")
    with small_disk(stage.project) as disk:
        running = disk.start(stage, "--all", "--parallel", 2)
        until(lambda: len(witness.calls()) >= 2)
        disk.fill()
        running.says(PAUSED)
        assert not outside(disk, stage, "docs/lld/*/*")
        disk.free()
        done = running.end()
        assert done.code == 0, done.out + done.err
        found = sorted(disk.seen_from_outside.glob("docs/lld/active/*.md"))
        assert [path.name for path in found] == ["LLD-040.md", "LLD-041.md"]
        assert all(flaw(path.read_bytes(), EVIDENCE) is None for path in found)
        assert not list(disk.seen_from_outside.rglob(".agentos-tmp-*"))
    assert len(witness.answered()) == 4


def test_a_run_that_waits_for_space_can_be_stopped_and_goes_on_later(stage: Stage) -> None:
    stage.issues(40, 41)
    witness = stage.server("--latency", "0.2,0.2")
    with small_disk(stage.home) as disk:
        running = disk.start(stage, "--all", "--parallel", 2)
        until(lambda: len(witness.calls()) >= 1)
        disk.fill()
        running.says(PAUSED)
        began = time.monotonic()
        running.process.terminate()
        stopped = running.end()
        assert stopped.code == 143 and time.monotonic() - began < 5, stopped.out
        assert "Traceback" not in stopped.out + stopped.err
        disk.free()
        done = disk.start(stage, "--all", "--parallel", 2).end()
        assert done.code == 0, done.out
    assert stage.document(40).exists() and stage.document(41).exists()


def test_a_home_that_is_full_from_the_beginning_is_refused_with_the_cure(stage: Stage) -> None:
    stage.issue(42)
    witness = stage.server()
    with small_disk(stage.home) as disk:
        disk.fill()
        done = disk.start(stage, "--all").end()
        assert done.code == 3 and "No space left" in done.err and "Traceback" not in done.err, done.err
        disk.free()
        assert disk.start(stage, "--all").end().code == 0
    assert len(witness.calls()) == 2


def test_a_disk_that_is_full_for_logs_alone_costs_one_warning(stage: Stage) -> None:
    stage.issues(40, 41, 42)
    witness = stage.server("--latency", "0.2,0.2")
    with small_disk(stage.home / "logs", "1m") as disk:
        stage.home.chmod(0o700)
        running = disk.start(stage, "--all", "--parallel", 2)
        until(lambda: len(witness.calls()) >= 1)
        disk.fill()
        done = running.end()
        assert done.code == 0, done.out + done.err
        assert done.out.count(WARNING) == 1 and "Pausing" not in done.out and "Traceback" not in done.err
    assert all(stage.document(number).exists() for number in (40, 41, 42))
    assert len(witness.answered()) == 6
