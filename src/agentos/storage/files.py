"""Files that are whole or not there, inside one folder."""

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from agentos.core.errors import PreflightError
from agentos.storage.locks import ItemLocks

FILE_MODE = 0o600
FOLDER_MODE = 0o700
TMP_PREFIX = ".agentos-tmp-"
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Folder:
    """Reads and writes below a root; no link on the way is followed, so nothing leads outside."""

    def __init__(self, root: Path, file_mode: int = 0o644, folder_mode: int = 0o755) -> None:
        self.root = root
        self._file_mode = file_mode
        self._folder_mode = folder_mode

    def write(self, name: str, content: bytes) -> Path:
        """Durable and atomic: after a power cut there is the old file or the new one.

        Whoever writes a name does so alone, or is told; what a killed writer of it left is removed.
        """
        with self._parent(name, make=True) as (parent, last):
            # The same for the same name: a leftover is found without looking through the folder.
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
        with self._parent(name, make=False) as (parent, last):
            descriptor = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
            with open(descriptor, "rb") as file:
                return file.read()

    def exists(self, name: str) -> bool:
        try:
            with self._parent(name, make=False) as (parent, last):
                os.stat(last, dir_fd=parent, follow_symlinks=False)
                return True
        except (FileNotFoundError, NotADirectoryError):
            return False

    def move(self, name: str, target: str) -> None:
        """Moves a file or folder; done before is as good as done now."""
        if not self.exists(name):
            return
        with (
            self._parent(name, make=False) as (old, last),
            self._parent(target, make=True) as (new, to),
        ):
            os.rename(last, to, src_dir_fd=old, dst_dir_fd=new)
            os.fsync(new)
            os.fsync(old)

    def remove(self, name: str) -> None:
        with (
            contextlib.suppress(FileNotFoundError, NotADirectoryError),
            self._parent(name, make=False) as (parent, last),
        ):
            os.unlink(last, dir_fd=parent)
            os.fsync(parent)

    def names(self, folder: str) -> list[str]:
        """The entries of a folder, sorted; none if there is no such folder."""
        try:
            with self._parent(folder + "/x", make=False) as (parent, _):
                return sorted(entry for entry in os.listdir(parent) if not entry.startswith("."))
        except (FileNotFoundError, NotADirectoryError):
            return []

    @contextlib.contextmanager
    def _parent(self, name: str, make: bool) -> Iterator[tuple[int, str]]:
        """The open folder that holds `name`, and the last part of the name."""
        parts = PurePosixPath(name).parts
        if not parts or PurePosixPath(name).is_absolute() or any(part in ("..", "") for part in parts):
            raise ValueError(f"not a name inside a folder: {name!r}")
        current = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parts[:-1]:
                inner = self._step(current, part, make)
                os.close(current)
                current = inner
            yield current, parts[-1]
        finally:
            os.close(current)

    def _step(self, parent: int, name: str, make: bool) -> int:
        try:
            return os.open(name, _FOLDER_FLAGS, dir_fd=parent)
        except FileNotFoundError:
            if not make:
                raise
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, self._folder_mode, dir_fd=parent)
            os.fsync(parent)
        return os.open(name, _FOLDER_FLAGS, dir_fd=parent)


def _create_tmp(folder: int, name: str, mode: int) -> int:
    """A new file, ours alone while it is open: what a dead writer left gives way, a living one's does not."""
    while True:
        try:
            descriptor = os.open(name, _NEW_FLAGS, mode, dir_fd=folder)
        except FileExistsError:
            _remove_stale_tmp(folder, name)
            continue
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _has_its_name(descriptor, folder, name):
                return descriptor
        os.close(descriptor)


def _remove_stale_tmp(folder: int, name: str) -> None:
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return
    except OSError:  # a link, or not for us to write: nobody of ours made it
        os.unlink(name, dir_fd=folder)
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _has_its_name(descriptor, folder, name):
            os.unlink(name, dir_fd=folder)
    except BlockingIOError as error:
        raise FileExistsError(errno.EEXIST, "another process writes it at this moment", name) from error
    finally:
        os.close(descriptor)


def _has_its_name(descriptor: int, folder: int, name: str) -> bool:
    try:
        return os.path.samestat(os.stat(name, dir_fd=folder, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def private_folder(path: Path) -> Path:
    """Makes the folder for its owner alone, parents too; it is there after a power cut."""
    if not path.parent.exists():
        private_folder(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=FOLDER_MODE)
        _sync_folder(path.parent)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    return path


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def private_file(path: Path) -> int:
    """Opens a file of ours for appending, made for its owner alone; never through a link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, FILE_MODE)


def check_home(home: Path) -> None:
    """Refuses a home that others could use against us."""
    try:
        found = home.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return
    cure = f"expected a folder of yours that only you can write to; set AGENTOS_HOME or mend {home}"
    if stat.S_ISLNK(found.st_mode):
        raise PreflightError(f"{home} is a symbolic link: {cure}")
    if not stat.S_ISDIR(found.st_mode):
        raise PreflightError(f"{home} is not a folder: {cure}")
    if found.st_uid != os.geteuid():
        raise PreflightError(f"{home} belongs to user {found.st_uid}, you are {os.geteuid()}: {cure}")
    if found.st_mode & 0o022:
        raise PreflightError(f"{home} may be written by others: type chmod 700 {home}")


class ProjectFolder(Folder):
    """A folder that can also serialise the giving out of numbers."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._locks = ItemLocks(root)

    @contextlib.contextmanager
    def numbering(self) -> Iterator[None]:
        self._locks.prepare()
        lock = self._locks.numbering()
        lock.wait()
        try:
            yield
        finally:
            lock.release()
