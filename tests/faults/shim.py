"""The LD_PRELOAD shim that injects faults into system calls; compiled on first use."""

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
    """The shim of one run: the environment that configures it, and its counters."""

    library: Path
    harness: RunHarness
    name: str = "shim"

    @property
    def state(self) -> Path:
        return self.harness.root / f"{self.name}.state"

    @property
    def record(self) -> Path:
        return self.harness.root / f"{self.name}.record"

    def environment(self, **faults: object) -> dict[str, Any]:
        """`kill_at=3` sets FAULTS_KILL_AT=3; shim.c documents all of them."""
        return {
            "LD_PRELOAD": str(self.library),
            "FAULTS_ROOTS": f"{self.harness.project}:{self.harness.home}",
            "FAULTS_STATE": str(self.state),
            **{f"FAULTS_{name.upper()}": str(value) for name, value in faults.items()},
        }

    @property
    def calls(self) -> int:
        return self._counter(0)

    @property
    def kills(self) -> int:
        return self._counter(1)

    @property
    def failed_syncs(self) -> int:
        return self._counter(2)

    @property
    def failed_forks(self) -> int:
        return self._counter(3)

    def shift_clock(self, seconds: int) -> None:
        """Shift the wall clock of every process by `seconds` relative to the real one."""
        with open(self.state, "r+b") as file:
            file.seek(32)
            file.write(struct.pack("l", seconds))

    def _counter(self, index: int) -> int:
        value: int = struct.unpack_from("l", self.state.read_bytes(), index * 8)[0]
        return value


def shim_for(harness: RunHarness, name: str = "shim") -> Shim:
    """The shim of a run; skips the test if there is no C compiler."""
    library = compiled()
    if library is None:
        pytest.skip("needs a C compiler (packages gcc and libc6-dev) to build the fault injection shim")
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
        temporary = folder / f"{digest}.{os.getpid()}"
        command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(temporary), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True, capture_output=True)
        temporary.rename(target)
    return target
