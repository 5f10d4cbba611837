"""Locks between real processes."""

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentos.regular_files import UnsafeFile
from agentos.storage.file_items import FileItems
from agentos.storage.home import Home
from agentos.storage.locks import Holder, ItemLocks, LockFile

ME = Holder(1, "run-here")
HOLD = """
import sys
from pathlib import Path
from agentos.storage.locks import Holder, ItemLocks
lock = ItemLocks(Path(sys.argv[1])).acquire(sys.argv[2], Holder(4711, "run-there"))
print("held" if lock else "not held", flush=True)
sys.stdin.read()
"""
LACK = """
import os, resource, sys
from pathlib import Path
from agentos.storage.locks import Holder, ItemLocks
locks = ItemLocks(Path(sys.argv[1]))
locks.prepare()
resource.setrlimit(resource.RLIMIT_NOFILE, (os.dup(0), 4096))
try:
    print(locks.acquire("LLD-42", Holder(1, "run-here")))
except OSError as error:
    print(error.strerror)
"""


@pytest.fixture
def locks(tmp_path: Path) -> ItemLocks:
    found = ItemLocks(tmp_path)
    found.prepare()
    return found


@contextlib.contextmanager
def another_process(project: Path, item: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", HOLD, str(project), item]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_decision_waits_for_the_worker_that_has_just_parked_its_item(
    tmp_path: Path, locks: ItemLocks
) -> None:
    items = FileItems(tmp_path, Home(tmp_path / "home"), None)
    with another_process(tmp_path, "LLD-42") as worker:
        threading.Timer(0.3, worker.kill).start()
        with items.deciding(str(tmp_path / "LLD-42.db"), "LLD-42") as notes:
            assert notes == {}
            assert locks.acquire("LLD-42", ME) is None


def test_an_item_is_locked_by_one_process_which_can_be_looked_up(tmp_path: Path, locks: ItemLocks) -> None:
    with another_process(tmp_path, "LLD-42"):
        assert locks.acquire("LLD-42", ME) is None
        assert locks.holder("LLD-42") == Holder(4711, "run-there")
        other = locks.acquire("LLD-43", ME)
        assert other is not None
        other.release()


def test_a_lock_is_free_as_soon_as_its_holder_dies(tmp_path: Path, locks: ItemLocks) -> None:
    with another_process(tmp_path, "LLD-42") as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        lock = locks.acquire("LLD-42", ME)
    assert lock is not None and locks.holder("LLD-42") == ME
    lock.release()


def test_held_locks_can_be_listed_without_taking_them(tmp_path: Path, locks: ItemLocks) -> None:
    free = locks.acquire("LLD-1", ME)
    assert free is not None
    free.release()
    with another_process(tmp_path, "LLD-42"):
        assert locks.held() == {"LLD-42": Holder(4711, "run-there")}
        assert locks.acquire("LLD-42", ME) is None
    assert locks.held() == {}


def test_two_locks_in_one_process_exclude_each_other_too(locks: ItemLocks) -> None:
    first = locks.acquire("LLD-1", ME)
    assert first is not None and locks.acquire("LLD-1", ME) is None
    first.release()
    first.release()
    second = locks.acquire("LLD-1", ME)
    assert second is not None
    second.release()


def test_the_lock_file_stays_after_release(tmp_path: Path, locks: ItemLocks) -> None:
    lock = locks.acquire("LLD-1", ME)
    assert lock is not None
    lock.release()
    assert (tmp_path / ".locks/task-LLD-1.lock").exists()


@pytest.mark.parametrize("name", ["task-LLD-1.lock", "task-LLD-1.holder"])
def test_a_link_to_a_victim_is_not_followed(tmp_path: Path, locks: ItemLocks, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / ".locks" / name).symlink_to(victim)
    with contextlib.suppress(OSError, UnsafeFile):
        lock = locks.acquire("LLD-1", ME)
        assert lock is not None and name.endswith("holder")
        lock.release()
    assert victim.read_text() == "mine"


def test_a_lock_file_that_is_a_link_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "victim")
    with pytest.raises((OSError, UnsafeFile)):
        LockFile(tmp_path / "lock").acquire()
    assert not (tmp_path / "victim").exists()


def test_a_lock_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".locks").symlink_to(tmp_path / "elsewhere")
    with pytest.raises((OSError, UnsafeFile)):
        ItemLocks(tmp_path).prepare()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_lock_folder_is_ignored_by_git_and_never_overwrites_a_file(tmp_path: Path) -> None:
    (tmp_path / ".locks").mkdir()
    (tmp_path / ".locks/.gitignore").symlink_to(tmp_path / "victim")
    ItemLocks(tmp_path).prepare()
    assert not (tmp_path / "victim").exists()
    (tmp_path / ".locks/.gitignore").unlink()
    ItemLocks(tmp_path).prepare()
    assert (tmp_path / ".locks/.gitignore").read_text() == "*\n"


@pytest.mark.parametrize("item", ["../x", "/etc/x", "a\nb", "", "-rf"])
def test_an_unsafe_item_id_is_refused(locks: ItemLocks, item: str) -> None:
    with pytest.raises(ValueError, match="not an item id"):
        locks.acquire(item, ME)


def test_a_missing_folder_is_an_error_and_not_a_held_lock(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        LockFile(tmp_path / "no folder" / "lock").acquire()


def test_running_out_of_descriptors_is_an_error_and_not_a_held_lock(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LACK, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout == "Too many open files\n"


@pytest.mark.parametrize("note", ["", "{", "[]", '{"pid": "x", "run": 3}', '{"run": "a"}'])
def test_an_unreadable_holder_note_is_ignored(tmp_path: Path, locks: ItemLocks, note: str) -> None:
    (tmp_path / ".locks/task-LLD-1.holder").write_text(note)
    assert locks.holder("LLD-1") is None
