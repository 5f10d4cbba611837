"""Atomic, durable file operations that never follow a symbolic link out of their folder; detects a full disk."""

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from agentos.regular_files import FOLDER_FIX, UnsafeFile, open_regular, read_regular
from agentos.storage.locks import ItemLocks, LockFile, is_locked, try_flock

FILE_MODE = 0o600
FOLDER_MODE = 0o700
MAX_DOCUMENT = 64 * 1024 * 1024  # bytes; twice the longest answer of a model
TMP_PREFIX = ".agentos-tmp-"
SCRATCH_LOCK = "in-use.lock"
LOCKED_WITHIN = 60.0  # seconds after a scratch folder was created
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
PROBE_SIZE = 256 * 1024  # bytes, about what a node writes
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_SQLITE_IOERR = 10
_SQLITE_FULL = 13


class Folder:
    """Reads and writes files below a root folder.

    Names are relative to the root. New files and folders follow the umask. No symbolic link on the way is followed, so no
    name can lead outside, even in a project that somebody else prepared.
    """

    def __init__(self, root: Path, file_mode: int = 0o666, folder_mode: int = 0o777) -> None:
        self.root = root
        self._file_mode = file_mode
        self._folder_mode = folder_mode

    def write(self, name: str, content: bytes) -> Path:
        """Replace a file atomically and durably: after a power cut, either the old or the new content is there.

        Raises FileExistsError if another process is writing the same file. A temporary file that a killed process
        left behind is removed.
        """
        with self._parent(name, make=True) as (parent, last):
            # Derived from the name, so that a leftover is found without listing the folder.
            tmp = TMP_PREFIX + hashlib.sha256(os.fsencode(last)).hexdigest()[:24]
            with open(_create_tmp(parent, tmp, self._file_mode), "wb") as file:
                try:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                    os.rename(tmp, last, src_dir_fd=parent, dst_dir_fd=parent)
                except BaseException:
                    with contextlib.suppress(OSError):
                        os.unlink(tmp, dir_fd=parent)
                    raise
            os.fsync(parent)
        return self.root / name

    def read(self, name: str) -> bytes:
        return read_regular(self.root / _checked(name), self.root, MAX_DOCUMENT)

    def exists(self, name: str) -> bool:
        try:
            with self._parent(name, make=False) as (parent, last):
                os.stat(last, dir_fd=parent, follow_symlinks=False)
                return True
        except (FileNotFoundError, UnsafeFile):
            return False

    def move(self, name: str, target: str) -> None:
        """Move a file or folder. Does nothing if the source does not exist, so it can be repeated after a crash."""
        if not self.exists(name):
            return
        with (
            self._parent(name, make=False) as (source_parent, source_name),
            self._parent(target, make=True) as (target_parent, target_name),
        ):
            os.rename(source_name, target_name, src_dir_fd=source_parent, dst_dir_fd=target_parent)
            os.fsync(target_parent)
            os.fsync(source_parent)

    def remove(self, name: str) -> None:
        with (
            contextlib.suppress(FileNotFoundError, UnsafeFile),
            self._parent(name, make=False) as (parent, last),
        ):
            os.unlink(last, dir_fd=parent)
            os.fsync(parent)

    def names(self, folder: str) -> list[str]:
        """The sorted names in a folder, without hidden ones; empty if the folder does not exist."""
        try:
            with self._parent(folder + "/x", make=False) as (parent, _):
                return sorted(entry for entry in os.listdir(parent) if not entry.startswith("."))
        except (FileNotFoundError, UnsafeFile):
            return []

    @contextlib.contextmanager
    def _parent(self, name: str, make: bool) -> Iterator[tuple[int, str]]:
        """A descriptor of the folder that contains `name`, and the last part of the name."""
        parts = _checked(name).parts
        current = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parts[:-1]:
                child = self._open_folder(current, part, make)
                os.close(current)
                current = child
            yield current, parts[-1]
        finally:
            os.close(current)

    def _open_folder(self, parent: int, name: str, make: bool) -> int:
        try:
            return os.open(name, _FOLDER_FLAGS, dir_fd=parent)
        except FileNotFoundError:
            if not make:
                raise
        except NotADirectoryError as error:
            problem = f"{name!r} in it is a symbolic link or a file, expected a folder: {FOLDER_FIX}"
            raise UnsafeFile(self.root, problem) from error
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, self._folder_mode, dir_fd=parent)
            os.fsync(parent)
        return os.open(name, _FOLDER_FLAGS, dir_fd=parent)


def _checked(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"not a relative path inside the folder: {name!r}")
    return path


def _create_tmp(folder: int, name: str, mode: int) -> int:
    """Create a temporary file and lock it. Replaces one left by a dead process, but never a living one's."""
    while True:
        try:
            descriptor = os.open(name, _NEW_FILE_FLAGS, mode, dir_fd=folder)
        except FileExistsError:
            _remove_stale_tmp(folder, name)
            continue
        with contextlib.suppress(BlockingIOError):
            try_flock(descriptor, fcntl.LOCK_EX)
            if _is_file_at(descriptor, folder, name):
                return descriptor
        os.close(descriptor)


def _remove_stale_tmp(folder: int, name: str) -> None:
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return
    except OSError:  # a link or not writable: not created by agentos
        os.unlink(name, dir_fd=folder)
        return
    try:
        try_flock(descriptor, fcntl.LOCK_EX)
        if _is_file_at(descriptor, folder, name):
            os.unlink(name, dir_fd=folder)
    except BlockingIOError as error:
        raise FileExistsError(errno.EEXIST, "another process is writing it", name) from error
    finally:
        os.close(descriptor)


def _is_file_at(descriptor: int, folder: int, name: str) -> bool:
    try:
        return os.path.samestat(os.stat(name, dir_fd=folder, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def private_folder(path: Path) -> Path:
    """Create a folder and its parents, accessible to their owner only, and durable."""
    if not path.parent.exists():
        private_folder(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=FOLDER_MODE)
        _sync_folder(path.parent)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    return path


@contextlib.contextmanager
def scratch_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A private folder that is deleted after the `with` block. Leftovers of killed processes are deleted first."""
    private_folder(parent)
    for left in parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # another process is doing the same
            is_new = time.time() - left.stat().st_mtime < LOCKED_WITHIN
            if not is_new and not is_locked(left / SCRATCH_LOCK):
                shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    lock = LockFile(folder / SCRATCH_LOCK)
    lock.acquire()
    try:
        yield folder
    finally:
        lock.release()
        shutil.rmtree(folder, ignore_errors=True)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def private_file(path: Path) -> int:
    """Open a file for appending, creating it with access for its owner only. Never follows a link."""
    return open_regular(path, flags=os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode=FILE_MODE)


class ProjectFolder(Folder):
    """A project's files, with a lock for assigning numbers. `announce` is called if another process holds that lock."""

    def __init__(self, root: Path, announce: Callable[[str], None] = lambda text: None) -> None:
        super().__init__(root)
        self._locks = ItemLocks(root)
        self._announce = announce

    @contextlib.contextmanager
    def numbering(self) -> Iterator[None]:
        """Hold the project's numbering lock, so that two processes never assign the same number."""
        self._locks.prepare()
        lock = self._locks.numbering()
        lock.wait(self._announce)
        try:
            yield
        finally:
            lock.release()


def is_full(error: BaseException, *folders: Path) -> bool:
    """Whether the error means that a disk is full. SQLite reports some of these only as "disk I/O error"."""
    if isinstance(error, OSError):
        return error.errno in _DISK_FULL
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        return code == _SQLITE_FULL or (code == _SQLITE_IOERR and not all(map(has_space, folders)))
    return False


def has_space(folder: Path) -> bool:
    """Whether a node's output would fit. Checked by writing, because free space does not account for user quotas."""
    while not folder.is_dir():
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(PROBE_SIZE))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        if error.errno in _DISK_FULL:
            return False
        raise
    return True
