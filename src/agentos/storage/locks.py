"""File locks (flock) that the kernel releases when their holder dies.

A lock is a file that stays in place; only the kernel's lock on it says whether it is held. No lock ever becomes stale,
none is taken from a living process, and `kill -9` needs no cleanup. Who holds a lock is looked up in /proc/locks, so
looking never disturbs the holder or another process that is about to take it.
"""

import contextlib
import errno
import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path

from agentos.core.planning.items import is_safe_id

LOCKS = ".locks"
_OPEN_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock. For messages only: decisions rely on the lock itself."""

    pid: int
    run: str


class LockFile:
    """An exclusive flock on one file, held until `release` or until every process that inherited it has ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor: int | None = None

    def acquire(self) -> bool:
        """Tries once. False if another process, or another user (EACCES), holds it; other errors are raised."""
        try:
            descriptor = os.open(self.path, _OPEN_FLAGS, 0o600)
        except PermissionError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except BaseException:
            os.close(descriptor)
            raise
        self.descriptor = descriptor
        return True

    def wait(self) -> None:
        """Blocks until the lock is free. Only for locks that are held for moments, never for an item's."""
        descriptor = os.open(self.path, _OPEN_FLAGS, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        self.descriptor = descriptor

    def release(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def is_locked(path: Path) -> bool:
    """Whether any process holds the lock. Does not touch it."""
    try:
        inode = _inode(path)
    except OSError:
        return False
    return inode in _flock_holders()


def stopped_holder(path: Path) -> int | None:
    """The pid of the lock's holder if that process is stopped, as by Ctrl-Z. Does not touch the lock."""
    with contextlib.suppress(OSError):
        pid = _flock_holders().get(_inode(path))
        if pid and Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T"):
            return pid
    return None


class ItemLocks:
    """The locks of one project's items: `.locks/task-LLD-42.lock`, beside a note that names the holder."""

    def __init__(self, project: Path) -> None:
        self._folder = project / LOCKS

    @classmethod
    def inside(cls, folder: Path) -> "ItemLocks":
        """Locks that are directly in this folder, such as one in the home."""
        locks = cls(folder)
        locks._folder = folder
        return locks

    def prepare(self) -> None:
        """Creates the folder, with a .gitignore that keeps it out of git."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        if self._folder.is_symlink():
            raise OSError(errno.ELOOP, "the lock folder is a symbolic link", str(self._folder))
        with contextlib.suppress(FileExistsError):
            _write_text(self._folder / ".gitignore", "*\n", os.O_EXCL)

    def acquire(self, item: str, holder: Holder) -> LockFile | None:
        """The item's lock, or None while another process holds it."""
        lock = LockFile(self._path(item, "lock"))
        if not lock.acquire():
            return None
        text = json.dumps({"pid": holder.pid, "run": holder.run})
        with contextlib.suppress(OSError):
            _write_text(self._path(item, "holder"), text, os.O_TRUNC)
        return lock

    def holder(self, item: str) -> Holder | None:
        """Who last acquired the item's lock; they may have released it since."""
        try:
            record = json.loads(self._path(item, "holder").read_text())
            return Holder(int(record["pid"]), str(record["run"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def held(self) -> dict[str, Holder | None]:
        """The items that are locked now, with their holders. Does not touch the locks."""
        holders = _flock_holders()
        found: dict[str, Holder | None] = {}
        for path in sorted(self._folder.glob("task-*.lock")):
            item = path.name[len("task-") : -len(".lock")]
            with contextlib.suppress(OSError):
                if _inode(path) in holders:
                    found[item] = self.holder(item)
        return found

    def clear_notes(self) -> int:
        """Removes the holder notes of items that nobody holds; returns how many. Each under its item's lock."""
        cleared = 0
        for note in sorted(self._folder.glob("task-*.holder")):
            lock = LockFile(note.with_suffix(".lock"))
            if lock.acquire():
                note.unlink(missing_ok=True)
                lock.release()
                cleared += 1
        return cleared

    def numbering(self) -> LockFile:
        """The lock to hold while a new item number is assigned."""
        return LockFile(self._folder / "numbering.lock")

    def _path(self, item: str, suffix: str) -> Path:
        if not is_safe_id(item):
            raise ValueError(f"not an item id: {item!r}")
        return self._folder / f"task-{item}.{suffix}"


def _write_text(path: Path, text: str, flag: int) -> None:
    """Never follows a link: the folder may have come with a downloaded project."""
    with open(os.open(path, _OPEN_FLAGS | flag, 0o600), "w") as file:
        file.write(text)


def _inode(path: Path) -> tuple[int, int]:
    state = path.lstat()
    return state.st_dev, state.st_ino


def _flock_holders() -> dict[tuple[int, int], int]:
    """Device and inode of every file with an flock, and the pid of its holder, from /proc/locks."""
    found = {}
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if "FLOCK" in fields and "->" not in fields:  # "->" marks a process that waits for the lock
            start = fields.index("FLOCK")
            major, minor, inode = fields[start + 4].split(":")
            found[os.makedev(int(major, 16), int(minor, 16)), int(inode)] = int(fields[start + 3])
    return found
