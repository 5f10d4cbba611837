"""Small disks in a separate mount namespace that a test can fill and free from outside."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.scenarios.harness import RunHarness, RunningCommand

BALLAST = ".ballast"


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """A tmpfs visible in one mount namespace only; the process `keeper` keeps that namespace alive."""

    path: Path
    keeper: int

    @property
    def host_path(self) -> Path:
        return Path(f"/proc/{self.keeper}/root{self.path}")

    def fill(self) -> int:
        """Write until the disk is full; return the number of bytes written."""
        taken = 0
        with open(self.host_path / BALLAST, "ab", buffering=0) as file, contextlib.suppress(OSError):
            for size in (65536, 4096, 512, 1):
                with contextlib.suppress(OSError):
                    while True:
                        taken += file.write(bytes(size))
        return taken

    def free(self) -> None:
        (self.host_path / BALLAST).unlink(missing_ok=True)

    def start(self, harness: RunHarness, *args: object, **env: str) -> RunningCommand:
        """Start a command in the namespace; nsenter changes to /, so change back to the project first."""
        in_project = ("sh", "-c", 'cd "$0" && exec "$@"', str(harness.project))
        return harness.start(
            *args, before=("nsenter", "-m", "-t", str(self.keeper), *in_project), stdout=None, **env
        )


@contextlib.contextmanager
def small_disk(path: Path, size: str = "4m") -> Iterator[SmallDisk]:
    """Mount a small disk over the folder, with its current content. Needs root and mount namespaces."""
    _require_namespaces()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    script = (
        'cp -a "$1" "$1.copy" && mount -t tmpfs -o "size=$2,mode=0700" none "$1" && '
        'cp -a "$1.copy/." "$1/" && rm -rf "$1.copy" && echo ready && exec sleep 600'
    )
    keeper = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "unshare", "-m", "sh", "-c", script, "sh", str(path), size],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert keeper.stdout and keeper.stdout.readline() == b"ready\n"
        yield SmallDisk(path, keeper.pid)
    finally:
        keeper.kill()
        keeper.wait()
        if keeper.stdout:
            keeper.stdout.close()


def _require_namespaces() -> None:
    try:
        exit_code = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode
    except FileNotFoundError:
        exit_code = 1
    if exit_code != 0 or os.geteuid() != 0:
        pytest.skip("needs root, mount namespaces and unshare (package util-linux) to mount a small disk")
