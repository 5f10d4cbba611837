"""Locks that the kernel releases when their holder dies."""

import contextlib
import errno
import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path

from agentos.core.planning.items import is_safe_id

LOCKS = ".locks"
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock; for messages only, never to decide anything."""

    pid: int
    run: str


class LockFile:
    """An flock on a file that stays; held until `release` or the end of the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor: int | None = None

    def acquire(self) -> bool:
        """Takes it or says no at once; only "held elsewhere" is a no, other errors are raised."""
        try:
            descriptor = os.open(self.path, _FLAGS, 0o600)
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
        """Takes it when it is free; for moments, not for work."""
        descriptor = os.open(self.path, _FLAGS, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        self.descriptor = descriptor

    def release(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def is_locked(path: Path) -> bool:
    """Whether somebody holds it, looked up without touching it."""
    try:
        state = path.lstat()
    except OSError:
        return False
    return (state.st_dev, state.st_ino) in _locked_inodes()


class ItemLocks:
    """The locks of one project's items, in its `.locks` folder."""

    def __init__(self, project: Path) -> None:
        self._folder = project / LOCKS

    @classmethod
    def inside(cls, folder: Path) -> "ItemLocks":
        """Locks that stand in a folder of their own, such as one in the home."""
        locks = cls(folder)
        locks._folder = folder
        return locks

    def prepare(self) -> None:
        """Makes the folder, with a .gitignore that keeps it out of git."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        if self._folder.is_symlink():
            raise OSError(errno.ELOOP, "the lock folder is a symbolic link", str(self._folder))
        with contextlib.suppress(FileExistsError):
            _write(self._folder / ".gitignore", "*\n", os.O_EXCL)

    def acquire(self, item: str, holder: Holder) -> LockFile | None:
        """The item's lock, or None while another process has it."""
        lock = LockFile(self._path(item, "lock"))
        if not lock.acquire():
            return None
        note = json.dumps({"pid": holder.pid, "run": holder.run})
        with contextlib.suppress(OSError):
            _write(self._path(item, "holder"), note, os.O_TRUNC)
        return lock

    def holder(self, item: str) -> Holder | None:
        """Who wrote the note beside the lock; it may be gone by now."""
        try:
            note = json.loads(self._path(item, "holder").read_text())
            return Holder(int(note["pid"]), str(note["run"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def held(self) -> dict[str, Holder | None]:
        """The items that are locked now, looked up without touching a lock."""
        inodes = _locked_inodes()
        found: dict[str, Holder | None] = {}
        for path in sorted(self._folder.glob("task-*.lock")):
            item = path.name[len("task-") : -len(".lock")]
            with contextlib.suppress(OSError):
                state = path.lstat()
                if (state.st_dev, state.st_ino) in inodes:
                    found[item] = self.holder(item)
        return found

    def clear_notes(self) -> int:
        """Removes the notes of holders that are gone, each under its lock; says how many."""
        cleared = 0
        for note in sorted(self._folder.glob("task-*.holder")):
            lock = LockFile(note.with_suffix(".lock"))
            if lock.acquire():
                note.unlink(missing_ok=True)
                lock.release()
                cleared += 1
        return cleared

    def numbering(self) -> LockFile:
        """Taken while a new number is given out."""
        return LockFile(self._folder / "numbering.lock")

    def _path(self, item: str, ending: str) -> Path:
        if not is_safe_id(item):
            raise ValueError(f"not an item id: {item!r}")
        return self._folder / f"task-{item}.{ending}"


def _write(path: Path, text: str, flag: int) -> None:
    """Never through a link: the folder may have come with a stranger's project."""
    with open(os.open(path, _FLAGS | flag, 0o600), "w") as file:
        file.write(text)


def stopped_holder(path: Path) -> int | None:
    """The process that holds this lock, if it stands still, as after Ctrl-Z; nothing is touched."""
    with contextlib.suppress(OSError):
        state = path.lstat()
        pid = _locked_inodes().get((state.st_dev, state.st_ino))
        if pid and Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T"):
            return pid
    return None


def _locked_inodes() -> dict[tuple[int, int], int]:
    """Device and inode of every file that somebody holds an flock on, and who, as the kernel lists them."""
    found = {}
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if "FLOCK" in fields and "->" not in fields:
            place = fields.index("FLOCK")
            major, minor, inode = fields[place + 4].split(":")
            found[os.makedev(int(major, 16), int(minor, 16)), int(inode)] = int(fields[place + 3])
    return found
