"""The layout of the home folder, and whether it is safe to use."""

import hashlib
import os
import re
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from agentos.core.errors import PreflightError
from agentos.storage.files import private_folder

PROBE_SIZE = 64 * 1024  # bytes


@dataclass(frozen=True, slots=True)
class Home:
    """Paths in the home folder: `~/.agentos`, or AGENTOS_HOME."""

    path: Path

    @property
    def credentials(self) -> Path:
        return self.path / "credentials.toml"

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def quota(self) -> Path:
        return self.path / "quota"

    @property
    def gateway(self) -> Path:
        """The tokens and the spending of a shared gateway."""
        return self.path / "gateway"

    @property
    def agents(self) -> Path:
        """Settings for coding agents that cannot be configured by flags and variables alone."""
        return self.path / "agents"

    @property
    def runs(self) -> Path:
        return self.path / "logs" / "parallel"

    def checkpoints(self, project: Path) -> Path:
        """One folder per project, because two projects may both have an item 42."""
        return self.path / "checkpoints" / project_key(project)

    def checkpoint(self, project: Path, workflow: str, number: int) -> Path:
        return self.checkpoints(project) / checkpoint_name(workflow, number)

    def graph_store(self, project: Path, workflow: str) -> Path:
        """LangGraph's store of one workflow, shared by its items."""
        return self.path / "stores" / project_key(project) / f"{workflow}.db"

    def code_index(self, project: Path) -> Path:
        """The index of the project's code, a cache that is rebuilt when it is missing."""
        return self.path / "code" / f"{project_key(project)}.db"

    def issue_index(self, project: Path) -> Path:
        """The issues of the project's GitHub repository, to find duplicates; rewritten by every run that files issues."""
        return self.path / "issues" / f"{project_key(project)}.db"

    def locks(self, project: Path) -> Path:
        """The second lock of each item. Those in the project may be deleted, for example by `git clean`; these are not."""
        return self.path / "locks" / project_key(project)

    def program(self, project: Path, name: str) -> Path:
        """The locks and done markers of one `agentos exec` command in one project."""
        return self.path / "exec" / project_key(project) / name

    def workspaces(self, project: Path, folder: str) -> Path:
        """The `worktrees` or `copies` in which `agentos exec` runs the items of a project."""
        return self.path / folder / project_key(project)

    def open(self) -> "Home":
        """Create the folder if needed and check that it can be written."""
        check_home(self.path)
        try:
            private_folder(self.path)
            with tempfile.TemporaryFile(dir=self.path) as probe:
                probe.write(bytes(PROBE_SIZE))
                probe.flush()
        except OSError as error:
            raise PreflightError(
                f"cannot write to the home folder {self.path}: {error.strerror}; "
                "set AGENTOS_HOME to a folder that you can write to"
            ) from error
        return self


def checkpoint_name(workflow: str, number: int) -> str:
    return f"{workflow}_workflow_{number}.db"


def checkpoint_number(path: Path) -> int | None:
    """The item's number in the name of its checkpoint; None if the file was given another name."""
    found = re.fullmatch(r".*_workflow_([0-9]+)\.db", path.name)
    return int(found[1]) if found else None


def project_key(project: Path) -> str:
    """A folder name for the project: readable, and unique by its real path."""
    real = os.path.realpath(project)
    return f"{os.path.basename(real) or 'root'}-{hashlib.sha256(os.fsencode(real)).hexdigest()[:8]}"


def check_home(home: Path) -> None:
    """Refuse a home folder that other users control. One that does not exist yet is fine."""
    try:
        state = home.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return
    expected = f"expected a folder that you own and only you can write to; set AGENTOS_HOME or fix {home}"
    if stat.S_ISLNK(state.st_mode):
        raise PreflightError(f"{home} is a symbolic link: {expected}")
    if not stat.S_ISDIR(state.st_mode):
        raise PreflightError(f"{home} is not a folder: {expected}")
    if state.st_uid != os.geteuid():
        raise PreflightError(f"{home} belongs to user {state.st_uid}, you are {os.geteuid()}: {expected}")
    if state.st_mode & 0o022:
        raise PreflightError(f"{home} is writable by others: run chmod 700 {home}")
