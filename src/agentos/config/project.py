"""Finds the project that a command works on, in the current folder or above it, and writes its paths for messages."""

import os
import re
import shlex
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from agentos.core.errors import PreflightError

PROJECT_FILE = "agentos.toml"
BACKLOG_FOLDERS = ("issues", "ideas/active")


def find_project(start: Path, environment: Mapping[str, str]) -> Path:
    """The nearest folder from `start` upward that has an agentos.toml, else one that has a backlog, else `start` itself.

    If `start` has either, it is the project, whatever is above it. The search ends at a folder with .git. It does not
    look into the home directory, the root or shared folders such as /tmp, nor above them, unless it starts there.
    """
    folders = list(_upward(start, os.path.realpath(environment.get("HOME") or "/")))
    if _has_backlog(start):
        return start
    with_file = (folder for folder in folders if (folder / PROJECT_FILE).is_file())
    return next(with_file, None) or next(filter(_has_backlog, folders), start)


def is_project(folder: Path) -> bool:
    """Whether the folder has settings of its own or a backlog."""
    return (folder / PROJECT_FILE).is_file() or _has_backlog(folder)


def working_folder() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise PreflightError("the current folder no longer exists: go to a project with cd") from error


def path_from_here(path: Path) -> str:
    """The path as the user would type it: relative if it is near the current folder, otherwise as it is."""
    try:
        here = Path.cwd()
    except OSError:
        return str(path)
    if path.is_relative_to(here) or here.is_relative_to(path) or here.is_relative_to(path.parent):
        return os.path.relpath(path, here)
    return str(path)


def repo_option(project: Path, environment: Mapping[str, str]) -> str:
    """What to add to a command so that it finds the project: ` --repo PATH`, or nothing where it is found anyway."""
    project = Path(os.path.abspath(project))
    try:
        is_found = find_project(Path.cwd(), environment) == project
    except OSError:
        is_found = False
    return "" if is_found else f" --repo {shlex.quote(path_from_here(project))}"


def project_prefix(project: Path) -> str:
    """The prefix that makes a project's path valid in the current folder; empty in the project itself."""
    relative = os.path.relpath(project)
    if relative == ".":
        return ""
    is_far = relative.startswith("../..") and not Path.cwd().is_relative_to(project)
    return f"{project if is_far else relative}/"


def with_paths_from_here(text: str, environment: Mapping[str, str]) -> str:
    """Replace absolute paths in the current folder, or in a project found above it, with relative ones."""
    try:
        here = Path.cwd()
    except OSError:
        return text
    # The current folder first: a path in it is also one in the project.
    for folder in dict.fromkeys((here, find_project(here, environment))):
        if folder != folder.parent:
            relative = os.path.relpath(folder, here)
            prefix = "" if relative == "." else f"{relative}/"
            # A path after = is the value of a variable or an option, which may be typed in another folder.
            path = rf"(?<![\w./=-]){re.escape(str(folder))}/(?=\S)"
            text = re.sub(path, lambda found, prefix=prefix: prefix, text)  # type: ignore[misc]
    return text


def _upward(start: Path, home: str) -> Iterator[Path]:
    yield start
    folder = start
    while not (folder / ".git").exists() and folder != folder.parent and str(folder) != home:
        folder = folder.parent
        if folder == folder.parent or str(folder) == home or _is_shared(folder):
            return
        yield folder


def _has_backlog(folder: Path) -> bool:
    return any((folder / name).is_dir() for name in BACKLOG_FOLDERS)


def _is_shared(folder: Path) -> bool:
    """Whether everyone may create files there, as in /tmp, so that an agentos.toml in it could be anybody's."""
    try:
        mode = folder.stat().st_mode
    except OSError:
        return True
    return bool(mode & stat.S_IWOTH and mode & stat.S_ISVTX)
