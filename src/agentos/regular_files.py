"""The only way to open a file that may be hostile: no links, no devices, no blocking, bounded size.

A cloned repository decides what is at every path inside it. Opened blindly, a link would send a private file to a
model, a FIFO would block forever, and a link to /dev/zero would exhaust memory. Every file of a project, and every file of the
home folder that may have been replaced, is opened by this module: with `read_regular` or `read_start` to read it into memory,
with `open_regular` to read it in parts or to write to it.
"""

import contextlib
import errno
import os
import stat
from pathlib import Path

from agentos.core.errors import PreflightError

MAX_BYTES = 1024 * 1024
FIX = "move it away, or replace it with a regular file"
FOLDER_FIX = "move it away, or replace it with a real folder"
_SAFE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PRIVATE_MODE = 0o600
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class UnsafeFile(PreflightError):
    """The path is not a regular file of acceptable size, or not a folder; `problem` says what was found and expected."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.problem = problem


class FileTooLarge(UnsafeFile):
    """A regular file that is larger than the reader allows; `size` in bytes."""

    def __init__(self, path: Path, limit: int) -> None:
        super().__init__(path, f"it is larger than {limit:,} bytes: make it smaller, or move it away")
        self.size = path.stat().st_size


def read_regular(
    path: Path, root: Path | None = None, limit: int = MAX_BYTES, *, follow: bool = False
) -> bytes:
    """The content of a regular file of at most `limit` bytes; for `root` and `follow` see `open_regular`."""
    content = read_start(path, root, limit + 1, follow=follow)
    if len(content) > limit:
        raise FileTooLarge(path, limit)
    return content


def read_start(path: Path, root: Path | None, size: int, *, follow: bool = False) -> bytes:
    """The first `size` bytes of a regular file."""
    descriptor = open_regular(path, root, follow=follow)
    try:
        chunks = []
        while size > 0 and (chunk := os.read(descriptor, min(size, 1 << 20))):
            chunks.append(chunk)
            size -= len(chunk)
        return b"".join(chunks)
    finally:
        os.close(descriptor)


def open_regular(
    path: Path,
    root: Path | None = None,
    flags: int = os.O_RDONLY,
    mode: int = _PRIVATE_MODE,
    *,
    follow: bool = False,
) -> int:
    """A descriptor of a regular file, opened without blocking.

    With a `root`, the folders between it and the file must not be links either, so nothing outside `root` is opened. With
    `follow`, for paths that only the user controls, the file itself may be a link. Raises UnsafeFile for anything but a
    regular file; FileNotFoundError and other errors of the file system pass through.
    """
    descriptor = _open(path, root, (_SAFE_FLAGS & ~os.O_NOFOLLOW if follow else _SAFE_FLAGS) | flags, mode)
    found = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(found):
        os.close(descriptor)
        raise _not_regular(path, _kind(found))
    return descriptor


def is_inside(path: Path, root: Path) -> bool:
    """Whether the folder can be reached from `root` without following a link. A missing folder counts as inside."""
    try:
        check_folder(path, root)
    except UnsafeFile:
        return False
    return True


def check_folder(path: Path, root: Path) -> None:
    """Raises UnsafeFile unless `path` is missing or is a folder that can be reached from `root` without following a link."""
    with contextlib.suppress(FileNotFoundError):
        os.close(_open_folder(path, root))


def list_folder(path: Path, root: Path | None = None) -> list[str]:
    """The names in a folder; none if the folder is missing. Raises UnsafeFile as `check_folder` does."""
    try:
        folder = _open_folder(path, path if root is None else root)
    except (FileNotFoundError, NotADirectoryError):
        return []
    try:
        return os.listdir(folder)
    finally:
        os.close(folder)


def _open(path: Path, root: Path | None, flags: int, mode: int) -> int:
    folder = None if root is None else _open_folder(path.parent, root)
    try:
        return os.open(path if folder is None else path.name, flags, mode, dir_fd=folder)
    except OSError as error:
        match error.errno:
            case errno.ELOOP if flags & os.O_NOFOLLOW:
                raise _not_regular(path, "a symbolic link") from error
            case errno.ELOOP:
                raise _not_regular(path, "a loop of symbolic links") from error
            case errno.ENXIO if flags & os.O_ACCMODE == os.O_RDONLY:
                raise _not_regular(path, "a socket") from error
            case errno.ENXIO:
                raise _not_regular(path, "a named pipe or a socket") from error
            case errno.EISDIR:
                raise _not_regular(path, "a folder") from error
        raise
    finally:
        if folder is not None:
            os.close(folder)


def _not_regular(path: Path, kind: str) -> UnsafeFile:
    return UnsafeFile(path, f"it is {kind}, expected a regular file: {FIX}")


def _open_folder(path: Path, root: Path) -> int:
    current = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    parts = path.relative_to(root).parts
    for number, part in enumerate(parts, 1):
        try:
            inner = os.open(part, _FOLDER_FLAGS, dir_fd=current)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            walked = root.joinpath(*parts[:number])
            kind = "a symbolic link" if walked.is_symlink() else "not a folder"
            problem = f"it is {kind}, expected a folder: {FOLDER_FIX}"
            raise UnsafeFile(walked, problem) from error
        finally:
            os.close(current)
        current = inner
    return current


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "of an unknown type")
