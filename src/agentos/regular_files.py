"""The one way to read a file that a stranger may have written: no links, no devices, no blocking, bounded size.

A cloned repository chooses what lies at every path inside it. Followed blindly, a link sends a private file to a model,
a FIFO blocks for ever and a link to /dev/zero eats all memory. Everything that reads a project's file, or a file in the
home that something may have replaced, goes through `read_regular`.
"""

import errno
import os
import stat
from pathlib import Path

from agentos.core.errors import PreflightError

MAX_BYTES = 1024 * 1024
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class UnsafeFile(PreflightError):
    """The path does not lead to a regular file of acceptable size; `problem` says what is there instead."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.problem = problem


def read_regular(path: Path, root: Path | None = None, limit: int = MAX_BYTES) -> bytes:
    """The content of a regular file of at most `limit` bytes.

    With a `root`, no folder between it and the file may be a link either, so nothing outside of it is reached.
    Raises UnsafeFile for anything but a regular file within the limit; FileNotFoundError and other errors of the
    file system pass through.
    """
    descriptor = _open(path, root)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UnsafeFile(path, f"it is {_kind(status.st_mode)}, expected a regular file")
        chunks, size = [], 0
        while size <= limit and (chunk := os.read(descriptor, min(limit + 1 - size, 1 << 20))):
            chunks.append(chunk)
            size += len(chunk)
        if size > limit:
            raise UnsafeFile(path, f"it is larger than {limit:,} bytes")
        return b"".join(chunks)
    finally:
        os.close(descriptor)


def is_inside(path: Path, root: Path) -> bool:
    """Whether the folder can be reached from `root` without following a link; a missing one counts as inside."""
    try:
        os.close(_open_folder(path, root))
    except FileNotFoundError:
        return True
    except (NotADirectoryError, UnsafeFile):
        return False
    return True


def _open(path: Path, root: Path | None) -> int:
    folder = None if root is None else _open_folder(path.parent, root)
    try:
        return os.open(path if folder is None else path.name, _FILE_FLAGS, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UnsafeFile(path, "it is a symbolic link, expected a regular file") from error
        if error.errno == errno.ENXIO:  # a socket
            raise UnsafeFile(path, "it is a socket, expected a regular file") from error
        raise
    finally:
        if folder is not None:
            os.close(folder)


def _open_folder(path: Path, root: Path) -> int:
    current = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    walked = root
    for part in path.relative_to(root).parts:
        walked = walked / part
        try:
            inner = os.open(part, _FOLDER_FLAGS, dir_fd=current)
        except OSError as error:
            if walked.is_symlink():
                raise UnsafeFile(walked, "it is a symbolic link, expected a folder of the project") from error
            raise
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
    return kinds.get(stat.S_IFMT(mode), "something else")
