"""The calls that differ between operating systems, behind one interface that is chosen once per process.

`PosixPlatform` uses what every Unix has: pipes, process groups, polling. `LinuxPlatform` overrides what Linux does better,
and falls back to it where /proc is hidden. Nothing else in the package makes a call that only Linux has. AGENTOS_PORTABLE=1
selects the portable calls on Linux too, so that the tests can run with them.
"""

import contextlib
import functools
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agentos.config.settings import wants_portable_calls
from agentos.process_memory import deny_inspection

PARENT_POLL_INTERVAL = 0.1  # seconds
PS_TIMEOUT = 5.0  # seconds
CLOCK_ROUNDING = 2.0  # seconds; two computations of the boot time differ by less
SANDBOX_ROOT = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
"""Arguments of bubblewrap: the machine as it is, read-only, with devices and processes of its own."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a Unix socket, as far as the kernel tells."""

    user: int | None = None
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class ExitedChild:
    """A child that was reaped; `status` is its exit code, or minus the signal that ended it."""

    pid: int
    status: int


@dataclass(frozen=True, slots=True)
class CpuSeconds:
    """Processor time in any unit: busy, and in total."""

    busy: float
    total: float


class PosixPlatform:
    """What works on every Unix."""

    name = "portable calls"
    has_parent_death_signal = False
    """Whether the kernel can end a process with its parent. If not, the fork server starts a reaper."""

    def die_with_parent(self, parent: int) -> None:
        """End this process when its parent ends. Starts a thread that polls the parent's pid."""

        def watch() -> None:
            while os.getppid() == parent:
                time.sleep(PARENT_POLL_INTERVAL)
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=watch, name="parent watch", daemon=True).start()

    def signal_on_parent_death(self, parent: int, number: signal.Signals) -> None:
        """Send this process a signal when its parent ends. Here the reaper kills its whole group instead."""

    def before_exec(self) -> Callable[[], None] | None:
        """A function to call between fork and exec so that the program dies with this process; here the reaper kills it."""
        return None

    def disable_core_dumps(self) -> None:
        """Keep the memory of this process out of core files."""
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def set_child_subreaper(self) -> None:
        """Become the parent of orphaned descendants. Not possible here: a process that leaves its group is lost."""

    def children(self) -> list[int]:
        """The children of this process if it is a subreaper; otherwise none."""
        return []

    def reap_child(self, on_exit: Callable[[int], None]) -> ExitedChild | None:
        """Reap one exited child; `on_exit` gets its pid, if possible before it is reaped."""
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if pid == 0:
            return None
        on_exit(pid)
        return ExitedChild(pid, os.waitstatus_to_exitcode(status))

    def peer(self, connection: socket.socket) -> Peer:
        """Who is at the other end. Unknown here: the modes of the socket and its folder keep others out."""
        return Peer()

    def is_stopped(self, pid: int, holding: Path | None = None) -> bool:
        """Whether the process is suspended, as by Ctrl-Z; False if that cannot be found out. For messages only.

        With `holding`, it must also have that file open: in another container the same pid is another process.
        """
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            command = ["ps", "-o", "state=", "-p", str(pid)]
            found = subprocess.run(command, capture_output=True, timeout=PS_TIMEOUT, check=False)
            return found.stdout.strip().startswith(b"T")
        return False

    def path_of(self, descriptor: int) -> Path | None:
        """The path of an open file, for messages; None if it is not known."""
        return None

    def host_clock(self) -> float:
        """Seconds since boot, the same for every process on the host. macOS counts time spent suspended, Linux does not."""
        return time.clock_gettime(time.CLOCK_MONOTONIC)

    def boot_id(self) -> str:
        """Identifies the current boot by its time. A changed wall clock looks like a reboot: harmless, see `peer_log`."""
        return f"at-{(time.time() - self.host_clock()) // CLOCK_ROUNDING:.0f}"

    def available_memory(self) -> int | None:
        """Bytes that new processes can use without swapping; None if that is not known."""
        for name in ("SC_AVPHYS_PAGES", "SC_PHYS_PAGES"):  # macOS has only the second
            with contextlib.suppress(ValueError, OSError):
                return os.sysconf(name) * os.sysconf("SC_PAGE_SIZE")
        return None

    def cpu_seconds(self) -> "CpuSeconds | None":
        """The processor time of all processors since boot; None if unknown."""
        return None


if sys.platform == "linux":
    _PR_SET_PDEATHSIG = 1
    _PR_SET_CHILD_SUBREAPER = 36
    _PROC = Path("/proc")
    _CGROUP = Path("/sys/fs/cgroup")

    class LinuxPlatform(PosixPlatform):
        """What Linux does better, and /proc if it shows our own pid namespace."""

        name = "Linux calls"
        has_parent_death_signal = True

        def die_with_parent(self, parent: int) -> None:
            """Have the kernel kill this process when the thread that created it ends; exit now if it has ended already."""
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

        def signal_on_parent_death(self, parent: int, number: signal.Signals) -> None:
            _prctl(_PR_SET_PDEATHSIG, number)
            if os.getppid() != parent:
                os.kill(os.getpid(), number)

        def before_exec(self) -> Callable[[], None]:
            return functools.partial(self.die_with_parent, os.getpid())

        def disable_core_dumps(self) -> None:
            """Keep this process's memory out of core files and away from other processes' debuggers."""
            super().disable_core_dumps()
            deny_inspection()

        def set_child_subreaper(self) -> None:
            _prctl(_PR_SET_CHILD_SUBREAPER, 1)

        def children(self) -> list[int]:
            """Without /proc, processes that a worker left in another session live on until they end by themselves."""
            if not _proc_is_ours():
                return []
            with contextlib.suppress(OSError):
                path = _PROC / "self" / "task" / str(os.getpid()) / "children"
                return [int(pid) for pid in path.read_text().split()]
            return []

        def reap_child(self, on_exit: Callable[[int], None]) -> ExitedChild | None:
            """`on_exit` is called while the pid still belongs to the child, so it cannot mean another process."""
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return None
            if found is None:
                return None
            on_exit(found.si_pid)
            _, status = os.waitpid(found.si_pid, 0)
            return ExitedChild(found.si_pid, os.waitstatus_to_exitcode(status))

        def peer(self, connection: socket.socket) -> Peer:
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            pid, user, _ = struct.unpack("3i", credentials)
            return Peer(user, pid)

        def is_stopped(self, pid: int, holding: Path | None = None) -> bool:
            if not _proc_is_ours():
                return False
            with contextlib.suppress(OSError):
                if not (_PROC / str(pid) / "stat").read_text().rpartition(") ")[2].startswith("T"):
                    return False
                try:
                    opened = list((_PROC / str(pid) / "fd").iterdir()) if holding else []
                except (
                    PermissionError
                ):  # a run is not dumpable, so its descriptors are hidden from its own user
                    return True
                return not holding or any(os.path.samestat(holding.stat(), fd.stat()) for fd in opened)
            return False

        def path_of(self, descriptor: int) -> Path | None:
            with contextlib.suppress(OSError):
                return Path(os.readlink(_PROC / "self" / "fd" / str(descriptor)))
            return None

        def host_clock(self) -> float:
            """Seconds since boot, including time spent suspended."""
            return time.clock_gettime(time.CLOCK_BOOTTIME)

        def boot_id(self) -> str:
            try:
                return (_PROC / "sys" / "kernel" / "random" / "boot_id").read_text().strip()[:8]
            except (FileNotFoundError, NotADirectoryError):
                return super().boot_id()

        def available_memory(self) -> int | None:
            """The kernel's estimate, or what the container may still use if that is less."""
            found = super().available_memory()
            with contextlib.suppress(OSError, IndexError, ValueError):
                text = (_PROC / "meminfo").read_text().partition("MemAvailable:")[2]
                found = int(text.split()[0]) * 1024
            free = _cgroup_memory()
            return found if free is None else free if found is None else min(found, free)

        def cpu_seconds(self) -> "CpuSeconds | None":
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (_PROC / "stat").read_text().partition("\n")[0].split()[1:9]
                ticks = [int(field) for field in fields]
                idle = ticks[3] + ticks[4]  # idle, and waiting for a disk
                return CpuSeconds(float(sum(ticks) - idle), float(sum(ticks)))
            return None

    def _prctl(option: int, value: int) -> None:
        import ctypes  # takes milliseconds, and most commands do not need it

        if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def _proc_is_ours() -> bool:
        """Whether /proc shows our pid namespace: `unshare --pid` without --mount-proc leaves the outer one in place."""
        with contextlib.suppress(OSError):
            return os.readlink(_PROC / "self") == str(os.getpid())
        return False

    def _cgroup_memory() -> int | None:
        """The memory left by the tightest limit of this process's control groups."""
        return min(filter(None, map(_free_memory, _memory_groups())), default=None)

    def _memory_groups() -> Iterator[Path]:
        """The folders of this process's control group and its ancestors, in version 1 or 2."""
        with contextlib.suppress(OSError):
            for line in (_PROC / "self" / "cgroup").read_text().splitlines():
                _, controller, path = line.split(":", 2)
                if controller in ("", "memory"):
                    root = _CGROUP / controller
                    group = root / path.lstrip("/")
                    yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(root))

    def _free_memory(group: Path) -> int | None:
        """The group's limit minus its usage; the file cache does not count, because it is reclaimed under pressure."""
        for limit, used in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            with contextlib.suppress(OSError, ValueError):
                cached = (group / "memory.stat").read_text().partition("inactive_file ")[2].split()[:1]
                free = int((group / limit).read_text()) - int((group / used).read_text())
                return max(1, free + sum(map(int, cached)))
        return None


def wakeup_pipe() -> tuple[int, int]:
    """The read and write end of a non-blocking pipe that no other program inherits."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    return reading, writing


@functools.cache
def platform() -> PosixPlatform:
    """The platform of this machine."""
    if sys.platform == "linux" and not wants_portable_calls():
        return LinuxPlatform()
    return PosixPlatform()


def host_clock() -> float:
    """Seconds since boot. The same for every process on the host."""
    return platform().host_clock()


@functools.cache
def boot_id() -> str:
    """Identifies the current boot: host clock readings of different boots cannot be compared."""
    return platform().boot_id()
