"""Keeps other processes of the same user from reading this one's memory and environment, which may contain keys.

It is the first thing that a command does, so this module imports next to nothing.
"""

import sys


def deny_inspection() -> None:
    """Forbid other processes to read our memory and /proc/PID/environ. Only Linux can; programs started later are not affected."""
    if sys.platform == "linux":
        import ctypes

        set_dumpable = 4  # PR_SET_DUMPABLE in <linux/prctl.h>
        ctypes.CDLL(None).prctl(set_dumpable, 0, 0, 0, 0)
