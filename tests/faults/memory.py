"""A control group with a low memory limit, whose processes the kernel's OOM killer ends."""

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.scenarios.harness import wait_until

CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """A control group, version 1 or 2."""

    folder: Path

    @property
    def oom_kills(self) -> int:
        """The number of its processes that the OOM killer has killed."""
        names = ("memory.events", "memory.oom_control")
        text = "".join(path.read_text() for name in names if (path := self.folder / name).exists())
        match = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
        return int(match[1]) if match else 0


@contextlib.contextmanager
def small_memory(size: int) -> Iterator[MemoryGroup]:
    """A control group limited to `size` bytes. Needs root and writable control groups."""
    is_version_1 = (CGROUPS / "memory").is_dir()
    folder = (CGROUPS / "memory" if is_version_1 else CGROUPS) / f"agentos-test-{os.getpid()}"
    limit = folder / ("memory.limit_in_bytes" if is_version_1 else "memory.max")
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"needs root and writable control groups: {error}")
    try:
        if not limit.exists():
            pytest.skip("needs control groups with memory accounting")
        limit.write_text(str(size))
        swap = folder / ("memory.swappiness" if is_version_1 else "memory.swap.max")
        if swap.exists():
            swap.write_text("0")
        yield MemoryGroup(folder)
    finally:
        wait_until(lambda: not (folder / "cgroup.procs").read_text(), 10)
        folder.rmdir()
