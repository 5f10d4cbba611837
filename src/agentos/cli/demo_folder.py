"""The folder of a demo: made, made anew or gone on with, and never while something works in it."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from agentos.core.errors import PreflightError, UsageError
from agentos.storage.home import Home
from agentos.storage.locks import ItemLocks, LockFile, is_locked
from agentos.storage.runs import is_alive, run_folders

MARK = ".agentos-demo"
HOME = ".agentos-home"


class UnderWay(UsageError):
    """Somebody works there."""


@contextlib.contextmanager
def demo_folder(directory: Path) -> Iterator[Path]:
    """Ready for a demo, and no other demo's until this one ends."""
    try:
        lock = _claimed(directory.absolute())
    except OSError as error:
        raise PreflightError(
            f"cannot make a demo in {directory}: {error.filename or directory}: {error.strerror}; "
            "name a folder that can be written: agentos demo DIR"
        ) from error
    try:
        yield directory.absolute()
    finally:
        lock.release()


def _claimed(project: Path) -> LockFile:
    """A finished demo is made anew, an unfinished one goes on; a stranger's folder is left alone."""
    lock = LockFile(project / MARK)
    project.mkdir(parents=True, exist_ok=True)
    if any(project.iterdir()) and not lock.path.exists():
        raise UsageError(f"{project} is not empty, and not a demo: name another folder: agentos demo DIR")
    if not lock.acquire():
        raise UnderWay(str(project)) if is_locked(lock.path) else _may_not(lock.path)
    try:
        if _is_used(project):
            raise UnderWay(str(project))
        if not _unfinished(project):
            _clear(project)
        _fill(project)
    except BaseException:
        lock.release()
        raise
    return lock


def _may_not(path: Path) -> OSError:
    from errno import EACCES

    return PermissionError(EACCES, os.strerror(EACCES), str(path))


def _is_used(project: Path) -> bool:
    """Whether a run of any kind lives in its home, or works on its items from another one."""
    runs = run_folders(Home(project / HOME).runs)
    return any(is_alive(run) for run in runs) or bool(ItemLocks(project).held())


def _unfinished(project: Path) -> bool:
    return any((project / HOME).glob("checkpoints/*/*.db"))


def _clear(project: Path) -> None:
    """All but the mark: whoever comes now finds it held."""
    for entry in project.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != MARK:
            entry.unlink()


def _fill(project: Path) -> None:
    with resources.as_file(resources.files("agentos.demo_backlog")) as backlog:
        for folder in ("issues", "ideas"):
            shutil.copytree(backlog / folder, project / folder, dirs_exist_ok=True)
