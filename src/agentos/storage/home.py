"""Where everything stands in the home folder."""

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from agentos.core.errors import PreflightError
from agentos.storage.files import check_home, private_folder

PROBE = 64 * 1024


@dataclass(frozen=True, slots=True)
class Home:
    """`~/.agentos`, or where AGENTOS_HOME moves it."""

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
    def runs(self) -> Path:
        return self.path / "logs" / "parallel"

    def checkpoints(self, project: Path) -> Path:
        """A folder per project: two projects may both have an item 42."""
        return self.path / "checkpoints" / project_key(project)

    def checkpoint(self, project: Path, workflow: str, number: int) -> Path:
        return self.checkpoints(project) / checkpoint_name(workflow, number)

    def program(self, project: Path, name: str) -> Path:
        """The locks and marks of one command that was run for items, in one project."""
        return self.path / "exec" / project_key(project) / name

    def open(self) -> "Home":
        """Makes it ready for writing, or says why it cannot be used."""
        check_home(self.path)
        try:
            private_folder(self.path)
            with tempfile.TemporaryFile(dir=self.path) as probe:
                probe.write(bytes(PROBE))
                probe.flush()
        except OSError as error:
            raise PreflightError(
                f"cannot write to the home folder {self.path}: {error.strerror}; "
                "set AGENTOS_HOME to a folder of yours that can be written"
            ) from error
        return self


def checkpoint_name(workflow: str, number: int) -> str:
    return f"{workflow}_workflow_{number}.db"


def project_key(project: Path) -> str:
    real = os.path.realpath(project)
    return f"{os.path.basename(real) or 'root'}-{hashlib.sha256(os.fsencode(real)).hexdigest()[:8]}"
