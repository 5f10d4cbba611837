"""The fork server: a process that imports everything heavy once and forks workers from it.

The coordinator sends start, kill, freeze and thaw messages over a socket; the fork server answers with what has
started and exited. It has one thread and opens no connection, so forking is safe.
"""

import contextlib
import errno
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from agentos.core.text.values import error_location, too_many_processes
from agentos.engines.lazy_modules import make_lazy, without_modules
from agentos.engines.reaper import Reaper
from agentos.engines.template_client import CHUNK
from agentos.platform_support import platform, wakeup_pipe

MAX_DESCRIPTORS = 16  # per message
Entry = Callable[[socket.socket], None]


class ForkServer:
    """Forks, signals and reaps the workers. Nobody else does, so a pid never refers to another process."""

    def __init__(
        self, control: socket.socket, entry: Entry, lifeline: int, idle_work: Iterator[object]
    ) -> None:
        """`idle_work` makes later workers cheaper; one step is done whenever there is nothing else to do."""
        self._control = control
        self._entry = entry
        self._lifeline = lifeline
        self._idle_work: Iterator[object] | None = idle_work
        self._reaper: Reaper | None = None
        self._unread = b""
        self._descriptors: list[int] = []
        self._children: dict[int, str] = {}
        self._wakeup_r, self._wakeup_w = wakeup_pipe()

    def serve(self) -> None:
        """Serve until the coordinator disconnects, then kill every worker."""
        signal.set_wakeup_fd(self._wakeup_w)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wakeup_r, select.POLLIN)
        while True:
            ready = poll.poll(0 if self._idle_work else None)
            for descriptor, _ in ready:
                if descriptor == self._wakeup_r:
                    self._drain_wakeup()
                elif not self._read_control():
                    return self._kill_all()
            self._reap()
            if not ready:
                self._do_idle_work()

    def _do_idle_work(self) -> None:
        work, self._idle_work = self._idle_work, None
        with contextlib.suppress(Exception):
            if work and next(work, self) is not self:
                self._idle_work = work

    def _drain_wakeup(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wakeup_r, 4096):
                pass

    def _read_control(self) -> bool:
        try:
            chunk, descriptors, flags, _ = socket.recv_fds(self._control, CHUNK, MAX_DESCRIPTORS)
        except ConnectionError:  # the coordinator was killed before it read what we sent
            return False
        if not chunk:
            return False
        self._descriptors += descriptors
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        for line in lines:
            self._handle_message(json.loads(line))
        if flags & socket.MSG_CTRUNC:  # out of descriptors: some are lost, and it is unknown which
            self._close_all(self._descriptors)
        return True

    def _handle_message(self, message: dict[str, object]) -> None:
        match message:
            case {"start": str(item), "descriptors": int(count)}:
                self._start(item, [self._descriptors.pop(0) for _ in self._descriptors[:count]])
            case {"hold": _, "descriptors": int(count)}:
                # These descriptors remain open here and in every worker forked from now on.
                del self._descriptors[:count]
            case {"kill": str(item)}:
                self._signal(item, signal.SIGKILL)
                self._send({"killed": item})
            case {"freeze": str(item)}:
                self._signal(item, signal.SIGSTOP)
            case {"thaw": str(item)}:
                self._signal(item, signal.SIGCONT)

    def _start(self, item: str, descriptors: list[int]) -> None:
        try:
            self._fork(item, descriptors)
        except OSError as error:
            reason = too_many_processes(error) if error.errno == errno.EAGAIN else str(error)
            self._send({"failed": item, "reason": reason})
        self._close_all(descriptors)

    def _fork(self, item: str, descriptors: list[int]) -> None:
        if len(descriptors) != 2:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        if not (self._reaper or platform().has_parent_death_signal):
            self._reaper = Reaper(self._lifeline, not_for_it=(self._control.fileno(), *descriptors))
        parent = os.getpid()
        reading, writing = self._reaper.open_pipe() if self._reaper else (-1, -1)
        try:
            pid = os.fork()
        except OSError:
            self._close_all([reading, writing])
            raise
        if pid == 0:
            # The worker keeps `writing` open until it ends, which is what the reaper waits for.
            self._close_all([reading])
            self._become_worker(parent, descriptors)
        if self._reaper:
            os.close(writing)
            self._reaper.watch(pid, reading)
        self._children[pid] = item
        self._send({"started": item, "pid": pid})

    def _become_worker(self, parent: int, descriptors: list[int]) -> None:
        code = 1
        try:
            os.setsid()
            if self._reaper:
                self._reaper.close()
            else:
                platform().die_with_parent(parent)
            platform().disable_core_dumps()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._control.close()
            os.close(self._wakeup_r)
            os.close(self._wakeup_w)
            channel, output = descriptors
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            self._entry(socket.socket(fileno=channel))
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException as error:
            from agentos.config.settings import wants_traceback

            shown = traceback.format_exc() if wants_traceback() else error_location(error)
            sys.stderr.write(f"{shown}\n")
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _signal(self, item: str, number: signal.Signals) -> None:
        for pid, child_item in self._children.items():
            if child_item == item:
                _signal_group(pid, number)

    def _reap(self) -> None:
        while child := platform().reap_child(lambda pid: _signal_group(pid, signal.SIGKILL)):
            item = self._children.pop(child.pid, None)
            if item is not None:
                self._kill_orphans()
                self._send({"ended": item, "status": child.status})

    def _kill_orphans(self) -> None:
        """Kill processes that a worker left behind in another session, which this process has adopted."""
        for pid in platform().children():
            if pid not in self._children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _kill_all(self) -> None:
        for pid in self._children:
            _signal_group(pid, signal.SIGKILL)
        self._kill_orphans()

    def _send(self, message: dict[str, object]) -> None:
        with contextlib.suppress(OSError):
            self._control.sendall(json.dumps(message).encode() + b"\n")

    @staticmethod
    def _close_all(descriptors: list[int]) -> None:
        while descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptors.pop())


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def main() -> None:
    """Import, warm up, then serve until the coordinator is gone."""
    control_fd, lifeline, coordinator, entry, preload, lazy, left_out, warm_up, idle = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if platform().has_parent_death_signal:
        platform().die_with_parent(int(coordinator))
        platform().set_child_subreaper()
    # Garbage collection would take a tenth of the time of these imports and find nothing.
    gc.disable()
    make_lazy(_names(lazy))
    with without_modules(_names(left_out)):
        for name in _names(preload):
            importlib.import_module(name)
    worker: Entry = _function(entry)
    if warm_up:
        _function(warm_up)()
    idle_work: Iterator[object] = _function(idle)() if idle else iter(())
    # No collection here either: workers would allocate in the gaps that it leaves, and copy each page they touch.
    gc.freeze()
    gc.enable()
    ForkServer(socket.socket(fileno=int(control_fd)), worker, int(lifeline), idle_work).serve()
    os._exit(0)  # skip finalisers: there is nothing to finalise, and the coordinator is waiting


def _function(path: str) -> Callable[..., Any]:
    """The function that "module:name" refers to."""
    module, _, name = path.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function


def _names(argument: str) -> list[str]:
    return [name for name in argument.split(",") if name]


if __name__ == "__main__":
    main()
