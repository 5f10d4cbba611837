"""A git worktree and branch per item, so that agents running in parallel never share a checkout."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from agentos.core.errors import PreflightError
from agentos.core.planning.exec_command import WorkspaceKind, WorkspaceSpec
from agentos.exec.git import GitError, git, git_code
from agentos.exec.workspace import (
    Workspace,
    WorkspaceError,
    WorkspaceState,
    locked,
    read_record,
    recorded_items,
    source_of,
)
from agentos.storage.files import Folder

BRANCH_PREFIX = "agentos/"
MAX_NAMED_CONFLICTS = 20
# Otherwise, git would run inside submodules, whose settings can name programs to run.
IGNORE_SUBMODULES = "--ignore-submodules=dirty"


@dataclass(frozen=True, slots=True)
class WorktreeRecord:
    """Written once the worktree is complete; a worktree without a record was interrupted while being created."""

    item: str
    branch: str
    base: str
    base_commit: str


@dataclass(frozen=True, slots=True)
class PushedBranch:
    """A branch on the remote, and what a pull request for it needs."""

    branch: str
    base: str
    subject: str
    remote: str


class Worktrees:
    """All worktrees of one repository.

    They are in the home folder, out of reach of `git clean` and of builds in the project, and stay until `remove`.
    Worktrees are created one at a time, because git's own locks make a second creation fail instead of wait.
    """

    def __init__(self, spec: WorkspaceSpec) -> None:
        self._spec = spec
        self._root = Path(spec.source)
        self._folder = Path(spec.folder)

    def open(self, item: str) -> Workspace:
        """The item's worktree. An existing one is continued; otherwise, one is created from the base."""
        path = self._path(item)
        with locked(self._folder):
            if self._record(item) is None:
                self._create(item, path)
        if not (path / ".git").exists():
            raise WorkspaceError(
                f"the worktree {path} was deleted; drop its record and start over: agentos worktrees prune {item} --force"
            )
        # Left by a killed git. Nobody else works here, since the caller holds the item's lock.
        Path(self._git_in(path, "rev-parse", "--path-format=absolute", "--git-path", "index.lock")).unlink(
            missing_ok=True
        )
        return Workspace(path / self._spec.prefix, path, BRANCH_PREFIX + item)

    def save(self, item: str, message: str) -> WorkspaceState:
        """Commit what the item's program left uncommitted, and compare its branch with the base."""
        path = self._path(item)
        self._git_in(path, "add", "--all", *_own_files(_repositories_below(path)))
        if git_code(path, "diff", "--cached", "--quiet", IGNORE_SUBMODULES):
            self._git_in(
                path, *_identity(path), "commit", "--quiet", "--no-verify", "--no-gpg-sign", "-m", message
            )
        return self.state(item)

    def items(self) -> list[str]:
        return recorded_items(self._folder)

    def source(self, item: str) -> str:
        return source_of(self._folder, item)

    def state(self, item: str) -> WorkspaceState:
        record, path = self._existing(item), self._path(item)
        if not self._resolves(record.branch):
            return WorkspaceState(
                item,
                WorkspaceKind.WORKTREE,
                str(path),
                record.branch,
                record.base,
                is_missing=True,
                source=source_of(self._folder, item),
            )
        base = record.base if self._resolves(record.base) else record.base_commit
        numbers = self._git("diff", "--numstat", f"{record.base_commit}...{record.branch}").splitlines()
        changed = [line.split("\t") for line in numbers]
        exists = (path / ".git").exists()
        nested = _repositories_below(path) if exists else ()
        return WorkspaceState(
            item,
            WorkspaceKind.WORKTREE,
            str(path),
            record.branch,
            base,
            commits=int(self._git("rev-list", "--count", f"{record.base_commit}..{record.branch}")),
            files=len(changed),
            added_lines=sum(int(line[0]) for line in changed if line[0].isdigit()),
            removed_lines=sum(int(line[1]) for line in changed if line[1].isdigit()),
            conflicts=self._conflicts(base, record.branch),
            is_merged=git_code(self._root, "merge-base", "--is-ancestor", record.branch, base) == 0,
            uncommitted=self._uncommitted(path, nested) if exists else 0,
            is_missing=not exists,
            source=source_of(self._folder, item),
            left_out=tuple(
                name for name in nested if git_code(path, "check-ignore", "--quiet", "--", name) == 1
            ),
        )

    def diff(self, item: str, *options: str) -> list[str]:
        """The git command that shows what the item changed since it started."""
        record = self._existing(item)
        return ["git", "-C", str(self._root), "diff", *options, f"{record.base_commit}...{record.branch}"]

    def merge(self, item: str) -> None:
        """Merge the item's branch into the one checked out; on a conflict, raises WorkspaceError and changes nothing."""
        record, state = self._existing(item), self.state(item)
        if state.uncommitted:
            raise WorkspaceError(
                f"{item} has uncommitted changes in {state.path}: commit them there, or run its command again"
            )
        if git_code(self._root, "diff", "--quiet", IGNORE_SUBMODULES, "HEAD"):
            raise WorkspaceError(f"{self._root} has uncommitted changes: commit or stash them before merging")
        message = f"Merge {record.branch}"
        arguments = (*_identity(self._root), "merge", "--no-ff", "--no-edit", "--quiet", "-m", message)
        if git_code(self._root, *arguments, record.branch) == 0:
            return
        conflicts = self._git("diff", "--name-only", "--diff-filter=U").splitlines()
        git_code(self._root, "merge", "--abort")
        raise WorkspaceError(
            f"{record.branch} conflicts in {', '.join(conflicts)}; merge it by hand: git merge {record.branch}"
        )

    def push(self, item: str) -> PushedBranch:
        """Push the item's branch to the remote `origin`."""
        record, state = self._existing(item), self.state(item)
        if not state.commits:
            raise WorkspaceError(f"{item} changed nothing: there is no commit to push")
        if git_code(self._root, "remote", "get-url", "origin"):
            raise WorkspaceError("there is no remote named origin; add it: git remote add origin URL")
        self._git("push", "--quiet", "origin", f"{record.branch}:{record.branch}")
        subject = self._git("log", "-1", "--format=%s", record.branch)
        return PushedBranch(record.branch, state.base, subject, self._git("remote", "get-url", "origin"))

    def remove(self, item: str, *, force: bool = False) -> None:
        """Remove the worktree and its branch; raises WorkspaceError if work would be lost and `force` is not given."""
        record, path = self._existing(item), self._path(item)
        if not force and (reason := self.state(item).unsaved):
            raise WorkspaceError(
                f"{item} {reason}; drop it anyway with: agentos worktrees prune {item} --force"
            )
        if not force and path.exists() and not self._resolves(record.branch):
            raise WorkspaceError(
                f"the branch {record.branch} was deleted, and {path} is still there; drop it anyway with: "
                f"agentos worktrees prune {item} --force"
            )
        if not force and (path / ".git").exists():
            lock = Path(self._git_in(path, "rev-parse", "--absolute-git-dir")) / "locked"
            if lock.exists():
                raise WorkspaceError(f"{item} is locked; unlock it: git worktree unlock {path}")
        with locked(self._folder):
            if path.exists():
                # Twice: the second --force also removes a locked worktree.
                self._git("worktree", "remove", *(("--force", "--force") if force else ()), str(path))
            self._git("worktree", "prune")
            if self._resolves(record.branch):
                self._git("branch", "-D", "--quiet", record.branch)
            self._files().remove(f"{item}.json")

    def _create(self, item: str, path: Path) -> None:
        branch = BRANCH_PREFIX + item
        if path.exists():  # interrupted before the record was written: no program has run in it
            git_code(self._root, "worktree", "remove", "--force", "--force", str(path))
            shutil.rmtree(path, ignore_errors=True)
        self._git("worktree", "prune")
        new = () if self._resolves(branch) else ("-b", branch)
        start = branch if not new else self._spec.base_commit
        self._git("worktree", "add", "--quiet", *new, str(path), start)
        base_commit = self._git("merge-base", branch, self._spec.base_commit) if not new else start
        record = WorktreeRecord(item, branch, self._spec.base, base_commit)
        self._files().write(f"{item}.json", json.dumps(asdict(record)).encode())

    def _uncommitted(self, path: Path, nested: tuple[str, ...]) -> int:
        found = self._git_in(path, "status", "--porcelain", IGNORE_SUBMODULES, *_own_files(nested))
        return len(found.splitlines())

    def _conflicts(self, base: str, branch: str) -> tuple[str, ...]:
        arguments = ("merge-tree", "--write-tree", "--name-only", "--no-messages", base, branch)
        if git_code(self._root, *arguments) != 1:
            return ()
        names = git(self._root, *arguments, codes=(1,)).splitlines()[1:]
        return tuple(names[:MAX_NAMED_CONFLICTS])

    def _resolves(self, revision: str) -> bool:
        return git_code(self._root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}") == 0

    def _path(self, item: str) -> Path:
        return self._folder / item

    def _files(self) -> Folder:
        return Folder(self._folder, file_mode=0o600, folder_mode=0o700)

    def _record(self, item: str) -> WorktreeRecord | None:
        return read_record(self._folder, item, WorktreeRecord)

    def _existing(self, item: str) -> WorktreeRecord:
        if record := self._record(item):
            return record
        raise WorkspaceError(f"{item} has no worktree; list them: agentos worktrees")

    def _git(self, *arguments: str) -> str:
        return self._git_in(self._root, *arguments)

    def _git_in(self, folder: Path, *arguments: str) -> str:
        try:
            return git(folder, *arguments)
        except GitError as error:
            raise WorkspaceError(str(error)) from error


def worktree_spec(project: Path, folder: Path) -> WorkspaceSpec:
    """Describe the worktrees of the project's repository; raises PreflightError if it has no commit to start from."""
    fix = "to work in copies of the folder instead, use --copy"
    try:
        root = git(project, "rev-parse", "--show-toplevel")
        prefix = git(project, "rev-parse", "--show-prefix").rstrip("/")
        commit = git(project, "rev-parse", "--verify", "HEAD^{commit}")
        branch = git(project, "symbolic-ref", "--quiet", "--short", "HEAD", codes=(0, 1))
    except GitError as error:
        raise PreflightError(f"--worktree needs a git repository with a commit: {error}; {fix}") from error
    return WorkspaceSpec(WorkspaceKind.WORKTREE, root, str(folder), prefix, branch or commit, commit)


def _repositories_below(worktree: Path) -> tuple[str, ...]:
    """Folders in the worktree that are git repositories themselves.

    A program may have created them, and their settings can name programs that git would run outside its sandbox.
    """
    return tuple(sorted(_nested(worktree)))


def _nested(worktree: Path) -> Iterator[str]:
    for parent, folders, files in os.walk(worktree):
        if parent == str(worktree):
            folders[:] = [name for name in folders if name != ".git"]
        elif any(name.casefold() == ".git" for name in (*folders, *files)):
            folders.clear()
            yield os.path.relpath(parent, worktree)


def _own_files(nested: tuple[str, ...]) -> list[str]:
    """Arguments for git: all files except those in nested repositories."""
    return ["--", ".", *(f":(exclude,literal){name}" for name in nested)]


def _identity(folder: Path) -> tuple[str, ...]:
    """Options that name a committer where the user has configured none."""
    if git_code(folder, "config", "user.email") == 0:
        return ()
    return ("-c", "user.name=agentos", "-c", "user.email=agentos@localhost")
