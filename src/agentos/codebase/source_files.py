"""Lists and reads the files of a project: those of the commit that is checked out, or those in the folder."""

import contextlib
import hashlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agentos.codebase.ignore_rules import IgnoreRules
from agentos.codebase.signatures import has_signatures
from agentos.codebase.skip_rules import MAX_FILE, is_own_document, skip_by_name
from agentos.regular_files import UnsafeFile, list_folder, read_regular

MAX_FILES = 200_000
_GIT_TIMEOUT = 120.0  # seconds
# The repository may be hostile, so only its objects are read: nothing that it configures is run or fetched.
_GIT = (
    "git",
    "--no-pager",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "protocol.allow=never",
    "--no-replace-objects",
)
_GIT_ENVIRONMENT = {
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
# Other hidden folders are caches, editor state or a home of agentos.
_HIDDEN_SOURCES = (".github", ".gitlab", ".circleci")
# The same files count as another snapshot once the parsers are installed.
_PARSED = {True: "", False: "-unparsed"}
_REGULAR_MODES = ("100644", "100755")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a snapshot: its path in the project, git's hash of its content, and its size in bytes."""

    path: str
    blob: str
    size: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files of a project at one moment. `commit` is empty if they were read from the folder itself."""

    name: str
    commit: str
    files: tuple[SourceFile, ...]


class BlobReader(Protocol):
    """Reads the content of a listed file."""

    def read(self, file: SourceFile) -> bytes: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ProjectSource:
    """Where a project's files come from. `environment` is what git runs with."""

    project: Path
    environment: Mapping[str, str]

    def take_snapshot(self, revision: str = "HEAD") -> Snapshot:
        """The committed files below the project; without a commit that has any, the files in the folder.

        Links, submodules and files with names that are not UTF-8 are left out.
        """
        commit = _commit(self, revision)
        files = tuple(_committed(self, commit)) if commit else ()
        if files:
            # A subfolder of a repository has different files than the whole repository at the same commit.
            return Snapshot(f"{commit}:{_digest(files)[:12]}{_PARSED[has_signatures()]}", commit, files)
        files = tuple(_in_folder(self.project))
        return Snapshot(f"files-{_digest(files)[:12]}{_PARSED[has_signatures()]}", "", files)

    def open_reader(self, snapshot: Snapshot) -> BlobReader:
        return _GitReader(self) if snapshot.commit else _FolderReader(self.project)


def _commit(source: ProjectSource, revision: str) -> str:
    return _git(source, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").decode().strip()


def _committed(source: ProjectSource, commit: str) -> Iterator[SourceFile]:
    listing = _git(source, "ls-tree", "-r", "-z", "-l", commit)
    found = 0
    for row in listing.split(b"\0"):
        facts, _, name = row.partition(b"\t")
        with contextlib.suppress(UnicodeDecodeError):
            path = name.decode()
            fields = facts.decode().split()
            if fields and fields[0] in _REGULAR_MODES and not is_own_document(path):
                # git does not know the size of an object that a partial clone lacks.
                yield SourceFile(path, fields[2], int(fields[3]) if fields[3].isdigit() else 0)
                found += 1
                if found >= MAX_FILES:
                    return


def _git(source: ProjectSource, *arguments: str) -> bytes:
    """The output of a git command; empty if git is missing, refuses the folder or takes too long."""
    try:
        done = subprocess.run(
            [*_GIT, *arguments],
            cwd=source.project,
            env={**source.environment, **_GIT_ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_GIT_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return done.stdout if done.returncode == 0 else b""


def _in_folder(project: Path) -> Iterator[SourceFile]:
    """Walk depth first, in order of name. A file that is skipped by its name is listed without being opened."""
    pending = [("", IgnoreRules().entering(project, ""))]
    found = 0
    while pending and found < MAX_FILES:
        folder, rules = pending.pop()
        deeper = []
        for name in sorted(_names(project, folder)):
            path = f"{folder}/{name}" if folder else name
            try:
                state = os.lstat(project / path)
            except OSError:
                continue
            is_folder = (state.st_mode & 0o170000) == 0o040000
            if is_folder and name.startswith(".") and name not in _HIDDEN_SOURCES:
                continue
            if rules.ignores(path, is_folder=is_folder) or is_own_document(f"{path}/" if is_folder else path):
                continue
            if is_folder:
                deeper.append((path, rules.entering(project, path)))
            elif (state.st_mode & 0o170000) == 0o100000:
                found += 1
                yield SourceFile(path, _blob_hash(project, path, state.st_size), state.st_size)
        pending += reversed(deeper)


def _names(project: Path, folder: str) -> list[str]:
    try:
        names = list_folder(project / folder, project)
    except (OSError, UnsafeFile):
        return []
    return [name for name in names if not any(0xDC80 <= ord(letter) <= 0xDCFF for letter in name)]


def _blob_hash(project: Path, path: str, size: int) -> str:
    """The hash that git would give the file, so that its rows stay valid when the project is put under git."""
    if skip_by_name(path, size):
        return hashlib.sha1(f"{path}\0{size}".encode(), usedforsecurity=False).hexdigest()
    try:
        content = read_regular(project / path, project, MAX_FILE)
    except (OSError, UnsafeFile):
        return hashlib.sha1(path.encode(), usedforsecurity=False).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _digest(files: tuple[SourceFile, ...]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.path}\0{file.blob}\n".encode())
    return digest.hexdigest()


class _FolderReader:
    def __init__(self, project: Path) -> None:
        self._project = project

    def read(self, file: SourceFile) -> bytes:
        return read_regular(self._project / file.path, self._project, MAX_FILE)

    def close(self) -> None:
        return


class _GitReader:
    """Reads all files through one `git cat-file --batch`: starting a process for each would take longer than indexing it."""

    def __init__(self, source: ProjectSource) -> None:
        self._process = subprocess.Popen(
            [*_GIT, "cat-file", "--batch"],
            cwd=source.project,
            env={**source.environment, **_GIT_ENVIRONMENT},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def read(self, file: SourceFile) -> bytes:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{file.blob}\n".encode())
        self._process.stdin.flush()
        header = self._process.stdout.readline().split()
        if len(header) != 3 or header[1] != b"blob":
            raise OSError(f"git has no object {file.blob} for {file.path}")
        content = self._process.stdout.read(int(header[2]))
        self._process.stdout.read(1)
        return content

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
