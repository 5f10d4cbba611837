"""The shim between a program and the kernel, compiled when it is first wanted."""

import functools
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.harness import RunHarness

SOURCE = Path(__file__).with_name("shim.c")


@dataclass(frozen=True, slots=True)
class Shim:
    """What one run is given, and what the shim has counted in it."""

    library: Path
    harness: RunHarness
    name: str = "shim"

    @property
    def state(self) -> Path:
        return self.harness.root / f"{self.name}.state"

    @property
    def record(self) -> Path:
        return self.harness.root / f"{self.name}.record"

    def environment(self, **wishes: object) -> dict[str, Any]:
        """`kill_at=3` becomes FAULTS_KILL_AT; see the head of shim.c."""
        return {
            "LD_PRELOAD": str(self.library),
            "FAULTS_ROOTS": f"{self.harness.project}:{self.harness.home}",
            "FAULTS_STATE": str(self.state),
            **{f"FAULTS_{name.upper()}": str(value) for name, value in wishes.items()},
        }

    @property
    def calls(self) -> int:
        return self._counter(0)

    @property
    def kills(self) -> int:
        return self._counter(1)

    @property
    def spoilt(self) -> int:
        return self._counter(2)

    @property
    def unforked(self) -> int:
        return self._counter(3)

    def turn_clock(self, seconds: int) -> None:
        """The wall clock of every process jumps, from where it would be by itself."""
        with open(self.state, "r+b") as file:
            file.seek(32)
            file.write(struct.pack("l", seconds))

    def _counter(self, place: int) -> int:
        found: int = struct.unpack_from("l", self.state.read_bytes(), place * 8)[0]
        return found


def shim_for(harness: RunHarness, name: str = "shim") -> Shim:
    """Skips the test where there is no C compiler."""
    library = compiled()
    if library is None:
        pytest.skip(
            "needs a C compiler (packages gcc and libc6-dev), for the shim between program and kernel"
        )
    return Shim(library, harness, name)


@functools.cache
def compiled() -> Path | None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"agentos-shim-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    target = folder / f"{digest}.so"
    if not target.exists():
        fresh = folder / f"{digest}.{os.getpid()}"
        words = [compiler, "-O2", "-shared", "-fPIC", "-o", str(fresh), str(SOURCE), "-ldl"]
        subprocess.run(words, check=True, capture_output=True)
        fresh.rename(target)
    return target
