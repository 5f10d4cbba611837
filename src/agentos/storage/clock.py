"""The host clock: shared by all processes, and unaffected by changes to the wall clock."""

import functools
import time
from pathlib import Path


def host_clock() -> float:
    """Seconds since boot, including time spent suspended. The same for every process on the host."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@functools.cache
def boot_id() -> str:
    """Identifies the current boot: host clock readings of different boots cannot be compared."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
