"""The folder that an item's program works in: a git worktree or a copy of the project."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from agentos.core.planning.exec_command import WorkspaceKind
from agentos.core.protocol.codec import unpack
from agentos.regular_files import read_regular

MAX_RECORD = 64 * 1024 * 1024  # bytes; the record of a copy lists every file
Record = TypeVar("Record")


class WorkspaceError(Exception):
    """The item's workspace cannot be used; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where a program runs: `working_dir` is the project's place inside `path`; `branch` is empty for a copy."""

    working_dir: Path
    path: Path
    branch: str = ""


@dataclass(frozen=True, slots=True)
class WorkspaceState:
    """What an item's workspace holds compared with what it started from."""

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

    @property
    def unsaved(self) -> str:
        """Why removing the workspace would lose work; empty if it would not."""
        if self.uncommitted:
            return f"has {self.uncommitted} uncommitted files"
        if self.files and not self.is_merged:
            return (
                f"is not merged into {self.base}"
                if self.branch
                else "has changes that are not in the project"
            )
        return ""


class Workspaces(Protocol):
    """The workspaces of one project. The caller of `open` and `save` holds the item's lock."""

    def open(self, item: str) -> Workspace: ...

    def save(self, item: str, message: str) -> WorkspaceState: ...

    def items(self) -> list[str]: ...

    def state(self, item: str) -> WorkspaceState: ...

    def diff(self, item: str, *options: str) -> list[str]: ...

    def merge(self, item: str) -> None: ...

    def remove(self, item: str, *, force: bool = False) -> None: ...


def recorded_items(folder: Path) -> list[str]:
    """The items that have a complete workspace, in natural order: task-2 before task-10."""
    names = [path.stem for path in folder.glob("*.json")]
    return sorted(names, key=lambda name: [(len(part), part) for part in re.findall(r"\d+|\D+", name)])


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
