"""Runs commands as another user, in a folder that other users may enter; needs root and setpriv."""

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import agentos
from tests.scenarios.harness import PROGRAMS, CompletedCommand, RunHarness, RunningCommand

GROUP = 54320
ALICE, BOB = 54321, 54322


@dataclass(frozen=True, slots=True)
class OtherUser:
    """A user without privileges, with a home of their own; `limits` is a piece of shell that runs before the command."""

    harness: RunHarness
    uid: int
    interpreter: str
    umask: str = "002"
    limits: str = "true"

    @property
    def prefix(self) -> tuple[str, ...]:
        identity = ("setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", f"--groups={GROUP}")
        return (*identity, "sh", "-c", f'umask {self.umask}; {self.limits}; exec "$@"', "sh")

    def start(self, *words: object, program: str = "lld-workflow", **env: str) -> RunningCommand:
        home = self.harness.root / f"home-{self.uid}"
        if not home.exists():
            home.mkdir(mode=0o700)
            os.chown(home, self.uid, self.uid)
        packages = f"{Path(agentos.__file__).parents[1]}:{sysconfig.get_path('purelib')}"
        return self.harness.start(
            *words,
            program=program,
            stdout=None,
            before=(*self.prefix, self.interpreter),
            HOME=str(home),
            AGENTOS_HOME=str(home / ".agentos"),
            PYTHONPATH=packages,
            **env,
        )

    def run(self, *words: object, program: str = "lld-workflow", **env: str) -> CompletedCommand:
        return self.start(*words, program=program, **env).wait(60)

    def shell(self, command: str) -> None:
        """Runs a line of shell in the project as this user."""
        subprocess.run([*self.prefix, "sh", "-c", command], cwd=self.harness.project, check=True)


@contextlib.contextmanager
def open_to_all() -> Iterator[RunHarness]:
    """A harness whose project belongs to GROUP; pytest's own folders are closed to other users."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("needs root and setpriv (package util-linux) to become another user")
    folder = Path(tempfile.mkdtemp(prefix="agentos-users-"))
    try:
        folder.chmod(0o755)
        with RunHarness.open(folder / "work") as harness:
            for path in (harness.project, harness.project / "issues"):
                os.chown(path, 0, GROUP)
                path.chmod(0o2775)
            yield harness
    finally:
        shutil.rmtree(folder)


def user(harness: RunHarness, uid: int, umask: str = "002", limits: str = "true") -> OtherUser:
    """A user who can run agentos; skips the test if no interpreter of this version is open to them."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for interpreter in (sys.executable, shutil.which(f"python{version}", path="/usr/local/bin:/usr/bin")):
        if interpreter:
            found = OtherUser(harness, uid, interpreter, umask)
            command = (
                "env",
                f"PYTHONPATH={Path(agentos.__file__).parents[1]}:{sysconfig.get_path('purelib')}",
            )
            ask = [*found.prefix, *command, interpreter, str(PROGRAMS / "agentos"), "--version"]
            if subprocess.run(ask, cwd="/", capture_output=True, check=False).returncode == 0:
                return OtherUser(harness, uid, interpreter, umask, limits)
    pytest.skip(f"another user may not run python{version} here")
