"""The folder that an item's program works in: a git worktree or a copy of the project."""

import contextlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from agentos.core.planning.exec_command import MAX_ID_LENGTH, WorkspaceKind, record_name
from agentos.core.protocol.codec import unpack
from agentos.core.text.line_assembler import clean
from agentos.regular_files import read_regular
from agentos.storage.files import Folder, private_folder
from agentos.storage.locks import LockFile

DIGEST_LENGTHS = (8, 16, 32)
MAX_RECORD = 64 * 1024 * 1024  # bytes; the record of a copy lists every file
Record = TypeVar("Record")


class WorkspaceError(Exception):
    """The item's workspace cannot be used; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where a program runs: `working_dir` is the project's folder inside `path`; `branch` is empty for a copy."""

    working_dir: Path
    path: Path
    branch: str = ""


@dataclass(frozen=True, slots=True)
class WorkspaceState:
    """How an item's workspace differs from what it started from."""

    item: str
    kind: WorkspaceKind
    path: str
    branch: str
    base: str
    commits: int = 0
    files: int = 0
    added_lines: int = 0
    removed_lines: int = 0
    conflicts: tuple[str, ...] = ()
    is_merged: bool = False
    uncommitted: int = 0
    is_missing: bool = False
    source: str = ""
    left_out: tuple[str, ...] = ()
    """Folders that are git repositories themselves; they are never saved."""

    @property
    def unsaved(self) -> str:
        """Why removing the workspace would lose work; empty if it would not."""
        if self.uncommitted:
            return f"has {self.uncommitted} uncommitted file{'' if self.uncommitted == 1 else 's'}"
        if self.left_out:
            return f"contains {repositories_text(self.left_out)}"
        if self.files and not self.is_merged:
            return (
                f"is not merged into {self.base}"
                if self.branch
                else "has changes that are not in the project"
            )
        return ""


class Workspaces(Protocol):
    """The workspaces of one project, by the names that `claim_name` gives to items.

    The caller of `open` and `save` holds the item's lock.
    """

    def open(self, item: str) -> Workspace: ...

    def save(self, item: str, message: str) -> WorkspaceState: ...

    def items(self) -> list[str]: ...

    def source(self, item: str) -> str: ...

    def state(self, item: str) -> WorkspaceState: ...

    def diff(self, item: str, *options: str) -> list[str]: ...

    def merge(self, item: str) -> None: ...

    def remove(self, item: str, *, force: bool = False) -> None: ...


def recorded_items(folder: Path) -> list[str]:
    """The items that have a complete workspace, in natural order: task-2 before task-10."""
    names = [path.stem for path in folder.glob("*.json")]
    return sorted(names, key=lambda name: [_order(part) for part in re.findall(r"\d+|\D+", name)])


def _order(part: str) -> tuple[int, int, str]:
    return (0, int(part), part) if part.isdigit() else (1, 0, part.casefold())


def read_record(folder: Path, item: str, kind: type[Record]) -> Record | None:
    """The record of a complete workspace; None if there is none."""
    try:
        text = read_regular(folder / f"{item}.json", folder, MAX_RECORD)
        record: Record = unpack(kind, json.loads(text))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise WorkspaceError(f"{folder / f'{item}.json'} cannot be read: {error}") from error
    return record


def claim_name(folder: Path, item: str, source: str) -> str:
    """The name of an item's workspace: its id, with a hash appended if the id belongs to another source.

    An id is unique only within its run. A name belongs to its source forever, even after the workspace is removed.
    """
    digest = record_name(source)
    names = [item, *(f"{item[: MAX_ID_LENGTH - length - 1]}-{digest[:length]}" for length in DIGEST_LENGTHS)]
    with locked(folder):
        owners = {name: source_of(folder, name) for name in names}
        if own := next((name for name in names if owners[name] == source), ""):
            return own
        name = next(name for name in names if not owners[name])
        content = source.encode("utf-8", "surrogateescape")
        Folder(folder, file_mode=0o600, folder_mode=0o700).write(_claim_file(name), content)
    return name


def source_of(folder: Path, name: str) -> str:
    """The source of the item that a workspace belongs to; empty if nobody has claimed the name."""
    try:
        return os.fsdecode(read_regular(folder / _claim_file(name), folder))
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise WorkspaceError(f"{folder / _claim_file(name)} cannot be read: {error}") from error


def _claim_file(name: str) -> str:
    return f".{name}.source"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Protects the list of workspaces against other items and other runs of this project."""
    private_folder(folder)
    lock = LockFile(folder / ".lock")
    lock.wait()
    try:
        yield
    finally:
        lock.release()


def repositories_text(folders: tuple[str, ...]) -> str:
    """Names folders that are git repositories of their own."""
    more = f" and {len(folders) - 1} more" if len(folders) > 1 else ""
    noun = "a git repository of its own" if len(folders) == 1 else "git repositories of their own"
    return f"{noun}, {clean(folders[0])}{more}"
