"""The fork server: a process that imports everything heavy once and forks workers from it.

The coordinator sends start, kill, freeze and thaw messages over a socket; the fork server answers with what has
started and exited. It has one thread and opens no connection, so forking is safe.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from agentos.engines.lazy_modules import make_lazy
from agentos.engines.prctl import die_with_parent, disable_core_dumps, set_child_subreaper
from agentos.engines.template_client import MAX_MESSAGE

Entry = Callable[[socket.socket], None]


class ForkServer:
    """Forks, signals and reaps the workers. Nobody else does, so a pid never refers to another process."""

    def __init__(self, control: socket.socket, entry: Entry) -> None:
        self._control = control
        self._entry = entry
        self._children: dict[int, str] = {}
        self._wakeup_r, self._wakeup_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self) -> None:
        """Serve until the coordinator disconnects, then kill every worker."""
        signal.set_wakeup_fd(self._wakeup_w)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wakeup_r, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self._wakeup_r:
                    self._drain_wakeup()
                elif not self._handle_message():
                    return self._kill_all()
            self._reap()

    def _drain_wakeup(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wakeup_r, 4096):
                pass

    def _handle_message(self) -> bool:
        try:
            message, descriptors, _, _ = socket.recv_fds(self._control, MAX_MESSAGE, 2)
        except ConnectionError:  # the coordinator was killed before it read what we sent
            return False
        if not message:
            return False
        match json.loads(message):
            case {"start": str(item)}:
                self._start(item, descriptors)
            case {"hold": _}:
                pass  # the descriptors stay open here and in every worker forked from now on
            case {"kill": str(item)}:
                self._signal(item, signal.SIGKILL)
            case {"freeze": str(item)}:
                self._signal(item, signal.SIGSTOP)
            case {"thaw": str(item)}:
                self._signal(item, signal.SIGCONT)
        return True

    def _start(self, item: str, descriptors: list[int]) -> None:
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._send({"failed": item, "reason": str(error)})
        else:
            if pid == 0:
                self._become_worker(parent, descriptors)
            self._children[pid] = item
            self._send({"started": item, "pid": pid})
        for descriptor in descriptors:
            os.close(descriptor)

    def _become_worker(self, parent: int, descriptors: list[int]) -> None:
        code = 1
        try:
            os.setsid()
            die_with_parent(parent)
            disable_core_dumps()
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
        except BaseException:
            traceback.print_exc()
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
        while child := _exited_child():
            _signal_group(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            item = self._children.pop(child, None)
            if item is not None:
                self._kill_orphans()
                self._send({"ended": item, "status": os.waitstatus_to_exitcode(status)})

    def _kill_orphans(self) -> None:
        """Kill what a worker left behind in another session: this process has adopted it."""
        for pid in _children_of(os.getpid()):
            if pid not in self._children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _kill_all(self) -> None:
        for pid in self._children:
            _signal_group(pid, signal.SIGKILL)
        self._kill_orphans()

    def _send(self, message: dict[str, object]) -> None:
        with contextlib.suppress(OSError):
            self._control.send(json.dumps(message).encode())


def _exited_child() -> int | None:
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return found.si_pid if found else None


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def _children_of(parent: int) -> list[int]:
    with contextlib.suppress(FileNotFoundError):  # /proc was unmounted: what is left dies with its session
        return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    return []


def main() -> None:
    """Import, warm up, then serve until the coordinator is gone."""
    control_fd, coordinator, entry, preload, lazy, warm_up = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    die_with_parent(int(coordinator))
    set_child_subreaper()
    # Collections during these imports take a tenth of their time and find nothing.
    gc.disable()
    make_lazy(_names(lazy))
    for name in _names(preload):
        importlib.import_module(name)
    worker: Entry = _function(entry)
    if warm_up:
        _function(warm_up)()
    # No collection here either: workers would allocate in the gaps, and each page they touch is copied.
    gc.freeze()
    gc.enable()
    ForkServer(socket.socket(fileno=int(control_fd)), worker).serve()
    os._exit(0)  # skip finalisers: there is nothing to finalise, and the coordinator is waiting


def _function(path: str) -> Callable[..., None]:
    """The function that "module:name" refers to."""
    module, _, name = path.partition(":")
    function: Callable[..., None] = getattr(importlib.import_module(module), name)
    return function


def _names(argument: str) -> list[str]:
    return [name for name in argument.split(",") if name]


if __name__ == "__main__":
    main()
