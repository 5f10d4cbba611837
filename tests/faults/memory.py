"""A group with little memory, whose processes the kernel itself ends when they want more."""

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.scenarios.harness import wait_until

CONTROL = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class SmallMemory:
    """A control group, of whichever version the machine has."""

    folder: Path

    @property
    def ended(self) -> int:
        """How many of its processes the kernel has ended."""
        names = ("memory.events", "memory.oom_control")
        text = "".join(path.read_text() for name in names if (path := self.folder / name).exists())
        found = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
        return int(found[1]) if found else 0


@contextlib.contextmanager
def small_memory(size: int) -> Iterator[SmallMemory]:
    """Needs root and control groups that can be written to."""
    first = (CONTROL / "memory").is_dir()
    folder = (CONTROL / "memory" if first else CONTROL) / f"agentos-test-{os.getpid()}"
    limit = folder / ("memory.limit_in_bytes" if first else "memory.max")
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"needs root and control groups that can be made: {error}")
    try:
        if not limit.exists():
            pytest.skip("needs control groups that count memory")
        limit.write_text(str(size))
        swap = folder / ("memory.swappiness" if first else "memory.swap.max")
        if swap.exists():
            swap.write_text("0")
        yield SmallMemory(folder)
    finally:
        wait_until(lambda: not (folder / "cgroup.procs").read_text(), 10)
        folder.rmdir()
