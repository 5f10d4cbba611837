"""What Linux offers a process for living and dying with its parent."""

import ctypes
import os
import resource
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


def die_with_parent(parent: int) -> None:
    """This process is killed when the thread that made it ends; at once if that has happened."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def signal_on_parent_death(parent: int, number: signal.Signals) -> None:
    """In place of being killed with it, this process gets this signal; at once if it is too late."""
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def disable_core_dumps() -> None:
    """No core file and no debugger of another process sees what this one holds."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _prctl(_PR_SET_DUMPABLE, 0)


def set_child_subreaper() -> None:
    """Grandchildren whose parent has died become ours, so that they can be ended."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
