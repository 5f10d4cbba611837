"""A copy of the project per item, for projects without git."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from agentos.core.planning.exec_command import WorkspaceKind, WorkspaceSpec
from agentos.exec.workspace import (
    Workspace,
    WorkspaceError,
    WorkspaceState,
    read_record,
    recorded_items,
    source_of,
)
from agentos.regular_files import open_regular, read_regular
from agentos.storage.files import MAX_DOCUMENT, Folder, ProjectFolder, private_folder

_LEFT_OUT = (".locks", ".git")
_LINK = "-> "
_CHUNK = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file as it was copied: the digest of its content, or the target of a symbolic link."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class CopyRecord:
    """Written once the copy is complete."""

    item: str
    files: tuple[CopiedFile, ...]

    @property
    def digests(self) -> dict[str, str]:
        return {file.name: file.digest for file in self.files}


class Copies:
    """All copies of one project. They are in the home folder, and stay until `remove`."""

    def __init__(self, spec: WorkspaceSpec) -> None:
        self._project = Path(spec.source)
        self._folder = Path(spec.folder)

    def open(self, item: str) -> Workspace:
        """The item's copy. An existing copy is continued; otherwise, one is made from the project."""
        path = self._folder / item
        if read_record(self._folder, item, CopyRecord) is None:
            private_folder(self._folder)
            shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(self._project, path, symlinks=True, ignore=self._left_out)
            record = CopyRecord(item, tuple(CopiedFile(*found) for found in _digests(path)))
            self._files().write(f"{item}.json", json.dumps(asdict(record)).encode())
        if not path.is_dir():
            raise WorkspaceError(
                f"the copy {path} was deleted; drop its record and start over: agentos worktrees prune {item} --force"
            )
        return Workspace(path, path)

    def save(self, item: str, message: str) -> WorkspaceState:
        """A copy needs no saving; `message` is used by worktrees only."""
        return self.state(item)

    def items(self) -> list[str]:
        return recorded_items(self._folder)

    def source(self, item: str) -> str:
        return source_of(self._folder, item)

    def state(self, item: str) -> WorkspaceState:
        path, changed = self._folder / item, self._changes(item)
        present = dict(_digests(self._project)) if changed else {}
        original = self._existing(item).digests
        pending = {name: digest for name, digest in changed.items() if present.get(name, "") != digest}
        conflicts = [name for name in pending if present.get(name, "") != original.get(name, "")]
        return WorkspaceState(
            item,
            WorkspaceKind.COPY,
            str(path),
            "",
            str(self._project),
            files=len(changed),
            conflicts=tuple(conflicts),
            is_merged=not pending,
            is_missing=not path.is_dir(),
            source=source_of(self._folder, item),
        )

    def diff(self, item: str, *options: str) -> list[str]:
        """The command that compares the copy with the project as it is now."""
        self._existing(item)
        brief = ["--brief"] if "--stat" in options else []
        left_out = [f"--exclude={name}" for name in _LEFT_OUT]
        return ["diff", "-ruN", *brief, *left_out, str(self._project), str(self._folder / item)]

    def merge(self, item: str) -> None:
        """Copy the item's changes into the project; on a conflict, raises WorkspaceError and changes nothing."""
        if conflicts := self.state(item).conflicts:
            raise WorkspaceError(
                f"{item} changed files that have changed in the project since: {', '.join(conflicts)}; "
                f"compare them: agentos worktrees diff {item}"
            )
        project, copy = ProjectFolder(self._project), self._folder / item
        for name, digest in self._changes(item).items():
            if not digest:
                project.remove(name)
            elif digest.startswith(_LINK):
                raise WorkspaceError(f"{item} made a symbolic link, {name}: copy it by hand from {copy}")
            else:
                project.write(name, read_regular(copy / name, copy, MAX_DOCUMENT))
                os.chmod(self._project / name, (copy / name).stat().st_mode & 0o777)

    def remove(self, item: str, *, force: bool = False) -> None:
        self._existing(item)
        if not force and (reason := self.state(item).unsaved):
            raise WorkspaceError(
                f"{item} {reason}; drop it anyway with: agentos worktrees prune {item} --force"
            )
        shutil.rmtree(self._folder / item, ignore_errors=True)
        self._files().remove(f"{item}.json")

    def _changes(self, item: str) -> dict[str, str]:
        """The new digest of every file that the item's program changed; empty for a deleted one."""
        before, after = self._existing(item).digests, dict(_digests(self._folder / item))
        names = sorted(before.keys() | after.keys())
        return {name: after.get(name, "") for name in names if before.get(name) != after.get(name)}

    def _left_out(self, folder: str, names: list[str]) -> list[str]:
        """Leave out locks, the home if it is inside the project, and what cannot be copied, such as pipes."""
        home = self._folder.parent.parent
        return [
            name
            for name in names
            if name in _LEFT_OUT or (path := Path(folder, name)) == home or not _can_be_copied(path)
        ]

    def _existing(self, item: str) -> CopyRecord:
        if record := read_record(self._folder, item, CopyRecord):
            return record
        raise WorkspaceError(f"{item} has no copy; list them: agentos worktrees")

    def _files(self) -> Folder:
        return Folder(self._folder, file_mode=0o600, folder_mode=0o700)


def _digests(folder: Path) -> Iterator[tuple[str, str]]:
    """Every file below the folder by its relative path, with the digest of its content."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        for name in names:
            if name in _LEFT_OUT:
                continue
            path = Path(parent, name)
            relative = str(path.relative_to(folder))
            if path.is_symlink():
                yield relative, _LINK + os.readlink(path)
            elif path.is_file():
                yield relative, _digest(path)


def _can_be_copied(path: Path) -> bool:
    return path.is_symlink() or path.is_dir() or path.is_file()


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open(open_regular(path), "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
