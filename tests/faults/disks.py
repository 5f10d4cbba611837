"""Small disks in a mount namespace of their own, filled and freed from outside."""

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
    """A tmpfs that only the processes of one namespace see; `keeper` keeps it there."""

    place: Path
    keeper: int

    @property
    def seen_from_outside(self) -> Path:
        return Path(f"/proc/{self.keeper}/root{self.place}")

    def fill(self) -> int:
        """Takes what is free; says how much that was."""
        taken = 0
        with open(self.seen_from_outside / BALLAST, "ab", buffering=0) as file, contextlib.suppress(OSError):
            for size in (65536, 4096, 512, 1):
                with contextlib.suppress(OSError):
                    while True:
                        taken += file.write(bytes(size))
        return taken

    def leave(self, size: int) -> None:
        """Full but for so many bytes."""
        self.fill()
        ballast = self.seen_from_outside / BALLAST
        os.truncate(ballast, max(0, ballast.stat().st_size - size))

    def free(self) -> None:
        (self.seen_from_outside / BALLAST).unlink(missing_ok=True)

    def start(self, harness: RunHarness, *words: object, **env: str) -> RunningCommand:
        """nsenter goes to the root folder; the command begins in the project, as ever."""
        there = ("sh", "-c", 'cd "$0" && exec "$@"', str(harness.project))
        return harness.start(
            *words, before=("nsenter", "-m", "-t", str(self.keeper), *there), stdout=None, **env
        )


@contextlib.contextmanager
def small_disk(place: Path, size: str = "4m") -> Iterator[SmallDisk]:
    """What is in the folder already is copied onto it; needs root and mount namespaces."""
    _require_namespaces()
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    script = (
        'cp -a "$1" "$1.copy" && mount -t tmpfs -o "size=$2,mode=0700" none "$1" && '
        'cp -a "$1.copy/." "$1/" && rm -rf "$1.copy" && echo ready && exec sleep 600'
    )
    keeper = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "unshare", "-m", "sh", "-c", script, "sh", str(place), size],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert keeper.stdout and keeper.stdout.readline() == b"ready\n"
        yield SmallDisk(place, keeper.pid)
    finally:
        keeper.kill()
        keeper.wait()
        if keeper.stdout:
            keeper.stdout.close()


def _require_namespaces() -> None:
    try:
        found = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode
    except FileNotFoundError:
        found = 1
    if found != 0 or os.geteuid() != 0:
        pytest.skip("needs root, mount namespaces and unshare (package util-linux), to make a small disk")
