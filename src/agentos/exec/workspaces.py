"""Chooses between worktrees and copies, and finds the workspaces of a project."""

from pathlib import Path
from typing import assert_never

from agentos.core.planning.exec_command import WorkspaceKind, WorkspaceSpec
from agentos.exec.copies import Copies
from agentos.exec.git import GitError, git, git_code
from agentos.exec.workspace import Workspaces
from agentos.exec.worktrees import IGNORE_SUBMODULES, Worktrees, worktree_spec
from agentos.storage.home import Home


def open_workspaces(spec: WorkspaceSpec) -> Workspaces:
    match spec.kind:
        case WorkspaceKind.WORKTREE:
            return Worktrees(spec)
        case WorkspaceKind.COPY:
            return Copies(spec)
        case _:
            assert_never(spec.kind)


def workspace_spec(home: Home, project: Path, kind: WorkspaceKind) -> WorkspaceSpec:
    """The workspaces' place and base. Raises PreflightError if the project cannot have workspaces of this kind."""
    folder = home.workspaces(project, kind.folder)
    if kind is WorkspaceKind.WORKTREE:
        return worktree_spec(project, folder)
    return WorkspaceSpec(kind, str(project), str(folder))


def uncommitted_files(spec: WorkspaceSpec) -> int:
    """The number of changed tracked files that a worktree would not contain."""
    if spec.kind is not WorkspaceKind.WORKTREE:
        return 0
    try:
        return len(git(Path(spec.source), "diff", "--name-only", IGNORE_SUBMODULES, "HEAD").splitlines())
    except GitError:
        return 0


def contains(spec: WorkspaceSpec, name: str) -> bool:
    """Whether an item's file is in its workspace with the content that it has in the project."""
    if spec.kind is WorkspaceKind.COPY:
        return True
    project = Path(spec.source) / spec.prefix
    is_tracked = git_code(project, "ls-files", "--error-unmatch", "--", name) == 0
    return is_tracked and git_code(project, "diff", "--quiet", spec.base_commit, "--", name) == 0
