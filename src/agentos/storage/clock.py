"""The host clock: shared by all processes, and unaffected by changes to the wall clock."""

import functools
import time
from pathlib import Path

from agentos.core.errors import PreflightError

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def host_clock() -> float:
    """Seconds since boot, including time spent suspended. The same for every process on the host."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@functools.cache
def boot_id() -> str:
    """Identifies the current boot: host clock readings of different boots cannot be compared."""
    try:
        return _BOOT_ID.read_text().strip()[:8]
    except (FileNotFoundError, NotADirectoryError) as error:
        raise PreflightError(
            f"cannot read {_BOOT_ID}: agentos needs /proc; mount it with: mount -t proc proc /proc "
            "(in a container, start it with /proc)"
        ) from error
