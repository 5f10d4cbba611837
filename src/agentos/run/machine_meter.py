"""Measures what the machine can spare: processors and memory, for `--parallel auto`."""

import os

from agentos.core.scheduling.auto_workers import MachineLoad
from agentos.platform_support import CpuSeconds, platform


class MachineMeter:
    """Each call measures processor use since the previous call."""

    def __init__(self) -> None:
        self._before = platform().cpu_seconds()

    def __call__(self) -> MachineLoad:
        cpus, now = os.cpu_count() or 1, platform().cpu_seconds()
        busy = _share(self._before, now)
        self._before = now
        return MachineLoad(cpus, None if busy is None else busy * cpus, platform().available_memory())


def _share(before: CpuSeconds | None, now: CpuSeconds | None) -> float | None:
    """The share of processor time in use; None if nothing was measured in between."""
    if before is None or now is None or now.total <= before.total:
        return None
    return (now.busy - before.busy) / (now.total - before.total)
