"""File locks (flock) that the kernel releases when their holder dies.

A lock file is never deleted; only the kernel's lock on it says whether it is held. No lock ever becomes stale, none is
taken from a living process, and `kill -9` needs no cleanup.

To find out whether a lock is held, a probe tries to share it for a moment. /proc would not do: it does not show the locks
of another container, and on an overlay the inode numbers differ. A process that wants the lock can distinguish a probe,
which shares it, from a holder, which does not.
"""

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agentos.core.errors import PreflightError
from agentos.core.planning.items import is_safe_id
from agentos.core.protocol.results import Ending, Outcome, Verdict
from agentos.platform_support import platform
from agentos.regular_files import UnsafeFile, check_folder, open_regular, read_regular
from agentos.storage.project_access import LOCKS, described, sharing_fix, user_name

PROBE_RETRY = 0.002  # seconds between tries while a probe shares the lock
PROBE_TIMEOUT = 2.0  # seconds; a probe lasts microseconds, unless its process was stopped in the middle
WAIT_INTERVAL = 0.02  # seconds
WAIT_TIMEOUT = 60.0  # seconds for a lock that is only held briefly
QUIET_WAIT = 1.0  # seconds before such a wait is announced
PRIVATE_MODE, SHARED_MODE = 0o600, 0o660
_OPEN_FLAGS = os.O_RDWR | os.O_CREAT
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


class NoFileLocks(PreflightError):
    """The file system does not support flock, like some network disks."""


class LockNotAllowed(PreflightError):
    """This user may not create or open the lock file: another user's project, or one that is not shared properly."""


class LockTimeout(PreflightError):
    """A lock that is usually held only briefly was not released in time. Trying again may help."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock. For messages only: decisions rely on the lock itself.

    `user` is empty if it is the current user. Without a pid, only the owner of the lock file is known.
    """

    pid: int
    run: str
    user: str = ""

    @property
    def text(self) -> str:
        if not self.pid:
            return f"{self.user}, who alone may open its lock file"
        return f"process {self.pid}, run {self.run}" + (f", {self.user}" if self.user else "")


class LockFile:
    """An exclusive flock on one file, held until `release` or until every process that inherited it has ended."""

    def __init__(self, path: Path, mode: int = PRIVATE_MODE) -> None:
        self.path = path
        self.descriptor: int | None = None
        self._mode = mode

    def acquire(self) -> bool:
        """Try once. Return False if another process holds it, or if it is another user's file that we may not read.

        Raises LockNotAllowed if the lock file may not be created: then nobody holds it, and waiting would not help.
        """
        while True:
            descriptor = self._open()
            if descriptor is None:
                return False
            try:
                if not _lock_exclusively(descriptor):
                    os.close(descriptor)
                    return False
                if _is_file_at(self.path, descriptor):
                    break
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # the file was replaced while we locked it: lock the new one
        self.descriptor = descriptor
        with contextlib.suppress(OSError):
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return True

    def _open(self) -> int | None:
        """A descriptor of the lock file; None if it is another user's and may not be read."""
        try:
            return open_regular(self.path, flags=_OPEN_FLAGS, mode=self._mode)
        except PermissionError as error:
            try:
                # Locking needs no write permission. Other permissions are checked where the item's files are written.
                return open_regular(self.path)
            except (FileNotFoundError, PermissionError):
                if os.path.lexists(self.path):
                    return None
            denied = described(self.path)
            fix = sharing_fix(self.path.parent.parent, [denied])
            raise LockNotAllowed(f"cannot lock {self.path.name}: {denied.problem}: {fix}") from error

    def wait(
        self, announce: Callable[[str], None] = lambda text: None, timeout: float = WAIT_TIMEOUT
    ) -> None:
        """Wait until the lock is free. Only for locks that are held briefly, never for an item's.

        `announce` is called once with the holder it waits for, if that takes longer than QUIET_WAIT.
        """
        started_at = time.monotonic()
        is_announced = False
        while not self.acquire():
            waited = time.monotonic() - started_at
            if waited > timeout:
                raise LockTimeout(
                    f"{self.holder_text()} has held {self.path} for over {timeout:.0f} s; "
                    "end it if it hangs, then try again"
                )
            if waited > QUIET_WAIT and not is_announced:
                announce(f"Waiting for {self.path.name}, which {self.holder_text()} holds...")
                is_announced = True
            time.sleep(WAIT_INTERVAL)

    def holder_text(self) -> str:
        """The process that holds the lock, as far as its file says."""
        pid, owner = _pid_in(self.path), _owner_of(self.path)
        return (f"process {pid}" if pid else "another process") + (f" of {owner}" if owner else "")

    def is_current(self) -> bool:
        """Whether the lock file is still the one that was locked: `git clean` may have removed it."""
        return self.descriptor is not None and _is_file_at(self.path, self.descriptor)

    def release(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def is_locked(path: Path) -> bool:
    """Whether any process holds the lock. A lock that may not be opened counts as held."""
    try:
        descriptor = open_regular(path)
    except PermissionError:
        return True
    except (OSError, UnsafeFile):
        return False
    try:
        return not _can_share(descriptor)
    finally:
        os.close(descriptor)


def stopped_holder(path: Path) -> int | None:
    """The pid of the lock's holder if that process is stopped, as by Ctrl-Z. For messages only."""
    pid = _pid_in(path)
    return pid if pid and is_locked(path) and platform().is_stopped(pid, holding=path) else None


class ItemLocks:
    """The locks of one project's items: `.locks/task-LLD-42.lock`, each next to a note that names the holder."""

    def __init__(self, project: Path) -> None:
        self._folder = project / LOCKS
        self._mode = SHARED_MODE

    @classmethod
    def inside(cls, folder: Path) -> "ItemLocks":
        """Locks that are directly in this folder, such as one in the home."""
        locks = cls(folder)
        locks._folder = folder
        locks._mode = PRIVATE_MODE
        return locks

    def prepare(self) -> None:
        """Create the folder, with a .gitignore that keeps it out of git.

        In a project it follows the umask and the group of the folder, so that several users may share a checkout.
        """
        mode = self._mode | 0o110 if self._mode == SHARED_MODE else 0o700
        with contextlib.suppress(FileExistsError):
            self._folder.mkdir(mode=mode)
        check_folder(self._folder, self._folder.parent)
        with contextlib.suppress(FileExistsError, UnsafeFile):
            self._write_text(self._folder / ".gitignore", "*\n", os.O_EXCL)

    def acquire(self, item: str, holder: Holder) -> LockFile | None:
        """The item's lock, or None while another process holds it."""
        lock = LockFile(self._path(item, "lock"), self._mode)
        if not lock.acquire():
            return None
        text = json.dumps({"pid": holder.pid, "run": holder.run, "uid": os.getuid()})
        with contextlib.suppress(OSError, UnsafeFile):
            self._write_text(self._path(item, "holder"), text, os.O_TRUNC)
        return lock

    def holder(self, item: str) -> Holder | None:
        """Who last acquired the item's lock; they may have released it since."""
        try:
            record = json.loads(read_regular(self._path(item, "holder"), limit=4096))
            uid = int(record.get("uid", os.getuid()))
            user = "" if uid == os.getuid() else user_name(uid)
            return Holder(int(record["pid"]), str(record["run"]), user)
        except PermissionError:
            return Holder(0, "", _owner_of(self._path(item, "lock")) or "another user")
        except (OSError, UnsafeFile, ValueError, KeyError, TypeError, AttributeError, OverflowError):
            return None

    def held(self) -> dict[str, Holder | None]:
        """The items that are locked now, with their holders."""
        locked = (path for path in sorted(self._folder.glob("task-*.lock")) if is_locked(path))
        items = (path.name[len("task-") : -len(".lock")] for path in locked)
        return {item: self.holder(item) for item in items}

    def is_held(self, item: str) -> bool:
        """Whether any process holds the item's lock now."""
        return is_locked(self._path(item, "lock"))

    def clear_notes(self) -> int:
        """Remove the holder notes of items that nobody holds, each under its item's lock; return how many."""
        cleared = 0
        for note in sorted(self._folder.glob("task-*.holder")):
            lock = LockFile(note.with_suffix(".lock"), self._mode)
            if lock.acquire():
                note.unlink(missing_ok=True)
                lock.release()
                cleared += 1
        return cleared

    def numbering(self) -> LockFile:
        """The lock to hold while a new item number is assigned."""
        return LockFile(self._folder / "numbering.lock", self._mode)

    def _path(self, item: str, suffix: str) -> Path:
        if not is_safe_id(item):
            raise ValueError(f"not an item id: {item!r}")
        return self._folder / f"task-{item}.{suffix}"

    def _write_text(self, path: Path, text: str, flag: int) -> None:
        """Write without following links: the folder may have come with a downloaded project."""
        with open(open_regular(path, flags=_OPEN_FLAGS | flag, mode=self._mode), "w") as file:
            file.write(text)


def held_outcome(holder: Holder | None) -> Outcome:
    """The outcome of an item whose lock another run holds."""
    who = f" ({holder.text})" if holder else ""
    return Outcome(Ending.HELD_BY_OTHER_RUN, error=f"another run is working on it{who}")


def finished_outcome(verdict: Verdict | None = None, how: str = "another run finished it") -> Outcome:
    """The outcome of an item that another run has finished."""
    return Outcome(Ending.FINISHED_BY_OTHER_RUN, verdict, error=how)


def finished_outside(verdict: Verdict) -> Outcome:
    """The outcome of an item with a document that another run, or a person, has written."""
    return finished_outcome(verdict, "finished outside this run")


def try_flock(descriptor: int, operation: int) -> None:
    """Lock without waiting. Raises BlockingIOError if the lock is held, and NoFileLocks if the disk has no locks."""
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        path = platform().path_of(descriptor)
        where = path.parent if path else "your project or of AGENTOS_HOME"
        raise NoFileLocks(
            f"the disk of {where} has no file locks ({os.strerror(error.errno)}), so two runs could work on the same item: "
            "move the project, or AGENTOS_HOME, to a local disk; check with: agentos doctor"
        ) from error


def _lock_exclusively(descriptor: int) -> bool:
    """Try to lock, retrying only while probes share the lock."""
    deadline = time.monotonic() + PROBE_TIMEOUT
    while True:
        try:
            try_flock(descriptor, fcntl.LOCK_EX)
        except BlockingIOError:
            if not _can_share(descriptor) or time.monotonic() > deadline:
                return False
            time.sleep(PROBE_RETRY)
        else:
            return True


def _can_share(descriptor: int) -> bool:
    """Whether nobody holds the lock exclusively. Shares it for a moment to find out."""
    try:
        try_flock(descriptor, fcntl.LOCK_SH)
    except BlockingIOError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


def _is_file_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _owner_of(path: Path) -> str:
    """The user who owns the file; empty if it is the current user."""
    with contextlib.suppress(OSError):
        uid = path.lstat().st_uid
        return "" if uid == os.getuid() else user_name(uid)
    return ""


def _pid_in(path: Path) -> int | None:
    with contextlib.suppress(OSError, UnsafeFile, ValueError):
        return int(read_regular(path, limit=64))
    return None
