"""The clock that all processes of this host share, as long as it is not started anew."""

import functools
import time
from pathlib import Path


def host_clock() -> float:
    """Seconds since the machine was started, the same for every process, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@functools.cache
def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
