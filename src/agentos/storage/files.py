"""Files that are whole or not there, inside one folder."""

import contextlib
import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from agentos.core.errors import PreflightError

FILE_MODE = 0o600
FOLDER_MODE = 0o700
TMP_PREFIX = ".agentos-tmp-"
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Folder:
    """Reads and writes below a root; no link on the way is followed, so nothing leads outside."""

    def __init__(self, root: Path, file_mode: int = 0o644, folder_mode: int = 0o755) -> None:
        self.root = root
        self._file_mode = file_mode
        self._folder_mode = folder_mode

    def write(self, name: str, content: bytes) -> Path:
        """Durable and atomic: after a power cut there is the old file or the new one.

        Whoever writes a name does so alone: what a killed writer of it left is removed.
        """
        with self._parent(name, make=True) as (parent, last):
            mark = TMP_PREFIX + hashlib.sha256(os.fsencode(last)).hexdigest()[:16]
            _clear(parent, mark)
            tmp = f"{mark}-{secrets.token_hex(4)}"
            try:
                self._fill(parent, tmp, content)
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

    def _fill(self, parent: int, name: str, content: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, self._file_mode, dir_fd=parent)
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

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


def _clear(folder: int, mark: str) -> None:
    for entry in os.listdir(folder):
        if entry.startswith(mark):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(entry, dir_fd=folder)


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
