"""Creates, recreates or reuses the folder of a demo, but never while a run uses it."""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from agentos.core.errors import PreflightError, UsageError
from agentos.storage.home import Home
from agentos.storage.locks import ItemLocks, LockFile, is_locked
from agentos.storage.runs import is_alive, run_folders

MARKER = ".agentos-demo"
HOME = ".agentos-home"


class DemoInUse(UsageError):
    """A run or another demo uses the folder."""


@contextlib.contextmanager
def demo_folder(directory: Path) -> Iterator[Path]:
    """Prepare the folder and keep other demos out of it until this one ends."""
    try:
        lock = _prepare(directory.absolute())
    except OSError as error:
        raise PreflightError(
            f"cannot create a demo in {directory}: {error.filename or directory}: {error.strerror}; "
            "choose a writable folder: agentos demo DIR"
        ) from error
    try:
        yield directory.absolute()
    finally:
        lock.release()


def _prepare(project: Path) -> LockFile:
    """Recreate a finished demo, keep an unfinished one to resume, refuse any other non-empty folder."""
    lock = LockFile(project / MARKER)
    project.mkdir(parents=True, exist_ok=True)
    if any(project.iterdir()) and not lock.path.exists():
        raise UsageError(f"{project} is not empty and not a demo; choose another folder: agentos demo DIR")
    if not lock.acquire():
        if is_locked(lock.path):
            raise DemoInUse(str(project))
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(lock.path))
    try:
        if _in_use(project):
            raise DemoInUse(str(project))
        if not any((project / HOME).glob("checkpoints/*/*.db")):
            _clear(project)
        _copy_backlog(project)
    except BaseException:
        lock.release()
        raise
    return lock


def _in_use(project: Path) -> bool:
    """Whether a live run uses the demo's home, or works on its items from another home."""
    runs = run_folders(Home(project / HOME).runs)
    return any(is_alive(run) for run in runs) or bool(ItemLocks(project).held())


def _clear(project: Path) -> None:
    """Remove everything but the locked marker, so that no other demo can start meanwhile."""
    for entry in project.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != MARKER:
            entry.unlink()


def _copy_backlog(project: Path) -> None:
    with resources.as_file(resources.files("agentos.demo_backlog")) as backlog:
        for folder in ("issues", "ideas"):
            shutil.copytree(backlog / folder, project / folder, dirs_exist_ok=True)
