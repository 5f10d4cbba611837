"""The process engine: workers are processes forked from a fork server, one per item."""

import contextlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import assert_never

from agentos.core.protocol import commands, events
from agentos.core.protocol.codec import CodecError, dumps, loads
from agentos.core.protocol.commands import Command
from agentos.core.protocol.events import EngineEvent, WorkerEvent
from agentos.core.protocol.results import Ending, Outcome
from agentos.core.text.line_assembler import LineAssembler
from agentos.core.text.values import exit_cause
from agentos.engines.template_client import ForkServerProcess, WorkerSpec
from agentos.platform_support import wakeup_pipe

CHUNK = 65536  # bytes
EXIT_GRACE = 1.0  # seconds that an exited worker's output may stay open
SHUTDOWN_GRACE = 0.3  # seconds for the fork server to exit by itself
KILL_GRACE = 10.0  # seconds for the fork server to confirm that it has killed a worker
LAST_KILL_GRACE = 0.7  # seconds, once every worker is to be killed
Received = list[EngineEvent | WorkerEvent]


@dataclass(slots=True)
class _ProcessWorker:
    """The coordinator's end of one worker; it is over when it has exited and its channel and output are closed."""

    item: str
    channel: socket.socket
    output: int
    lines: LineAssembler
    unread: bytes = b""
    unsent: bytes = b""
    open: set[int] = field(default_factory=set)
    pid: int | None = None
    status: int | None = None
    close_at: float | None = None
    is_stopping: bool = False
    is_killed: bool = False
    kill_due: float | None = None
    is_listened_to: bool = False


class ProcessEngine:
    """Starts and kills workers through the fork server, and reads their events and output.

    It may be given a fork server that was started earlier with the same spec, and then owns it.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        task_for: Callable[[commands.StartWorker], str],
        redact: Callable[[str], str],
        fork_server: ForkServerProcess | None = None,
    ) -> None:
        self._spec = spec
        self._task_for = task_for
        self._redact = redact
        self._selector = selectors.DefaultSelector()
        self._wakeup_r, self._wakeup_w = wakeup_pipe()
        self._selector.register(self._wakeup_r, selectors.EVENT_READ, self._drain_wakeup)
        self._workers: dict[str, _ProcessWorker] = {}
        self._events: Received = []
        self._has_worked = False
        self._is_ready = False
        self._is_connected = False
        self._fork_server = fork_server
        if fork_server is not None:
            self._connect(fork_server)

    def warm_up(self) -> None:
        """Start the fork server now: its imports take a second."""
        if not self._is_connected:
            self._fork_server = ForkServerProcess(self._spec)
            self._connect(self._fork_server)

    def execute(self, command: Command) -> None:
        match command:
            case commands.StartWorker():
                self._start(command)
            case commands.KillWorker():
                self._kill(command.item)
            case commands.FreezeWorker():
                self._send_control({"freeze": command.item})
            case commands.ThawWorker():
                self._send_control({"thaw": command.item})
            case commands.StopWorker():
                self._send(command.item, dumps(command))
                self._stop_early(command.item)
            case commands.GrantLease():
                self._send(command.item, dumps(command))
            case _:
                assert_never(command)

    def receive(self, timeout: float | None) -> Received:
        for key, _ in self._selector.select(self._next_timeout(timeout)):
            # An earlier callback may have closed this one.
            if self._selector.get_map().get(key.fd) is key:
                key.data()
        self._close_late()
        self._kill_hanging_fork_server()
        received, self._events = self._events, []
        return received

    def wake(self) -> None:
        # A signal may still arrive after `close`, when the descriptor may already belong to another file.
        if self._wakeup_w >= 0:
            with contextlib.suppress(BlockingIOError):
                os.write(self._wakeup_w, b"!")

    def watch(self, descriptor: int) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, lambda: None)

    def close(self) -> None:
        self._disconnect()
        for worker in list(self._workers.values()):
            for descriptor in list(worker.open):
                self._close(worker, descriptor)
        if self._fork_server is not None:
            self._fork_server.close(SHUTDOWN_GRACE if self._has_worked else 0.0)
        self._selector.close()
        os.close(self._wakeup_r)
        descriptor, self._wakeup_w = self._wakeup_w, -1
        os.close(descriptor)

    def _connect(self, fork_server: ForkServerProcess) -> None:
        self._is_ready = False
        self._is_connected = True
        self._selector.register(fork_server, selectors.EVENT_READ, self._read_fork_server)
        # This is the first message, so that every worker inherits the descriptors.
        if self._spec.inherited:
            fork_server.send({"hold": "descriptors"}, self._spec.inherited)

    def _read_fork_server(self) -> None:
        assert self._fork_server is not None
        messages = self._fork_server.receive()
        if messages is None:
            return self._handle_fork_server_death()
        for message in messages:
            self._is_ready = True
            self._handle_fork_server_message(message)

    def _handle_fork_server_message(self, message: dict[str, object]) -> None:
        match message:
            case {"started": str(item), "pid": int(pid)}:
                self._events.append(events.WorkerStarted(item, pid))
                self._workers[item].pid = pid
                self._listen(self._workers[item])
            case {"killed": str(item)} if worker := self._workers.get(item):
                worker.kill_due = None
            case {"failed": str(item), "reason": str(reason)}:
                self._drop(self._workers.pop(item))
                self._events.append(events.WorkerStartFailed(item, reason))
            case {"ended": str(item), "status": int(status)}:
                self._workers[item].status = status
                self._workers[item].close_at = time.monotonic() + EXIT_GRACE
                self._report_exit_if_over(self._workers[item])

    def _stop_early(self, item: str) -> None:
        """If the fork server is still importing and every worker is to stop, kill it instead of waiting for it."""
        if worker := self._workers.get(item):
            worker.is_stopping = True
        if (
            self._is_ready
            or self._fork_server is None
            or not all(one.is_stopping for one in self._workers.values())
        ):
            return
        self._fork_server.kill()
        self._disconnect()
        for worker in list(self._workers.values()):
            self._events.append(events.WorkerReported(worker.item, Outcome(Ending.INTERRUPTED)))
            worker.status = 0
            self._drop(worker)

    def _kill(self, item: str) -> None:
        self._send_control({"kill": item})
        if worker := self._workers.get(item):
            worker.is_killed = True
            worker.kill_due = worker.kill_due or time.monotonic() + KILL_GRACE
            if all(one.is_killed for one in self._workers.values()):
                last = time.monotonic() + LAST_KILL_GRACE
                for one in self._workers.values():
                    one.kill_due = one.kill_due and min(one.kill_due, last)

    def _kill_hanging_fork_server(self) -> None:
        """A fork server that confirms no kill would make the run wait forever: kill it and all workers."""
        now = time.monotonic()
        if (
            self._fork_server is None
            or not self._is_connected
            or not any(one.kill_due is not None and now >= one.kill_due for one in self._workers.values())
        ):
            return
        for worker in self._workers.values():
            if worker.pid is not None and worker.status is None:
                # Nobody else reaps workers, so the pid still refers to this one.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(worker.pid, signal.SIGKILL)
        self._fork_server.kill()
        self._handle_fork_server_death()

    def _handle_fork_server_death(self) -> None:
        """The kernel kills the workers with the fork server; each is over when its channel closes."""
        self._disconnect()
        for worker in list(self._workers.values()):
            worker.status = -signal.SIGKILL if worker.status is None else worker.status
            worker.close_at = time.monotonic() + EXIT_GRACE
            worker.kill_due = None
            self._listen(worker)
            self._report_exit_if_over(worker)

    def _disconnect(self) -> None:
        if self._fork_server is not None and self._is_connected:
            self._is_connected = False
            self._selector.unregister(self._fork_server)
            self._fork_server.disconnect()

    def _send_control(self, message: dict[str, str], descriptors: tuple[int, ...] = ()) -> None:
        if self._fork_server is not None and self._is_connected:
            self._fork_server.send(message, descriptors)

    def _start(self, command: commands.StartWorker) -> None:
        try:
            self.warm_up()
            ours, theirs = socket.socketpair()
            reading, writing = os.pipe()
        except OSError as error:
            self._events.append(events.WorkerStartFailed(command.item, str(error)))
            return self.wake()
        worker = _ProcessWorker(command.item, ours, reading, LineAssembler(self._redact))
        worker.open = {ours.fileno(), reading}
        self._workers[command.item] = worker
        self._has_worked = True
        self._send_control({"start": command.item}, (theirs.fileno(), writing))
        theirs.close()
        os.close(writing)
        self._send(command.item, self._task_for(command))

    def _listen(self, worker: _ProcessWorker) -> None:
        """Start reading a worker, only once it is known to have started: it may write before the fork server reports it."""
        if not worker.is_listened_to:
            worker.is_listened_to = True
            self._selector.register(worker.channel, _interest(worker), lambda: self._serve_channel(worker))
            self._selector.register(worker.output, selectors.EVENT_READ, lambda: self._read_output(worker))

    def _send(self, item: str, line: str) -> None:
        """Send without blocking; what the socket has no room for is sent later. A worker that is gone misses it."""
        worker = self._workers.get(item)
        if worker and worker.channel.fileno() in worker.open:
            worker.unsent += line.encode() + b"\n"
            self._send_rest(worker)

    def _send_rest(self, worker: _ProcessWorker) -> None:
        try:
            while worker.unsent:
                worker.unsent = worker.unsent[worker.channel.send(worker.unsent, socket.MSG_DONTWAIT) :]
        except BlockingIOError:
            pass
        except OSError:
            worker.unsent = b""  # it is gone, and its exit is reported separately
        if worker.is_listened_to and self._selector.get_key(worker.channel).events != (
            interest := _interest(worker)
        ):
            self._selector.modify(worker.channel, interest, lambda: self._serve_channel(worker))

    def _serve_channel(self, worker: _ProcessWorker) -> None:
        if worker.unsent:
            self._send_rest(worker)
        try:
            chunk = worker.channel.recv(CHUNK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except ConnectionError:
            chunk = b""
        if not chunk:
            self._close(worker, worker.channel.fileno())
            return
        *lines, worker.unread = (worker.unread + chunk).split(b"\n")
        for line in lines:
            self._handle_worker_message(worker, line)

    def _handle_worker_message(self, worker: _ProcessWorker, line: bytes) -> None:
        """Accept only events about the worker's own item."""
        with contextlib.suppress(CodecError):
            event = loads(line)
            if isinstance(event, WorkerEvent) and event.item == worker.item:
                self._events.append(event)

    def _read_output(self, worker: _ProcessWorker) -> None:
        chunk = os.read(worker.output, CHUNK)
        lines = worker.lines.feed(chunk) if chunk else worker.lines.close()
        self._events.extend(events.LineWritten(worker.item, line) for line in lines)
        if not chunk:
            self._close(worker, worker.output)

    def _close(self, worker: _ProcessWorker, descriptor: int) -> None:
        worker.open.discard(descriptor)
        if worker.is_listened_to:
            self._selector.unregister(descriptor)
        if descriptor == worker.output:
            os.close(descriptor)
        else:
            worker.channel.close()
        self._report_exit_if_over(worker)

    def _report_exit_if_over(self, worker: _ProcessWorker) -> None:
        if worker.status is not None and not worker.open and worker.item in self._workers:
            del self._workers[worker.item]
            self._events.append(
                events.WorkerExited(worker.item, exit_cause(worker.status), worker.status == 0)
            )

    def _close_late(self) -> None:
        """Close workers that have exited but whose output another process still holds open."""
        now = time.monotonic()
        for worker in list(self._workers.values()):
            if worker.close_at is not None and now >= worker.close_at:
                self._events.extend(events.LineWritten(worker.item, line) for line in worker.lines.close())
                self._drop(worker)

    def _drop(self, worker: _ProcessWorker) -> None:
        for descriptor in list(worker.open):
            self._close(worker, descriptor)

    def _next_timeout(self, timeout: float | None) -> float | None:
        if self._events:
            return 0.0
        deadlines = [
            due
            for worker in self._workers.values()
            for due in (worker.close_at, worker.kill_due)
            if due is not None
        ]
        if not deadlines:
            return timeout
        remaining = max(0.0, min(deadlines) - time.monotonic())
        return remaining if timeout is None else min(timeout, remaining)

    def _drain_wakeup(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakeup_r, 4096)


def _interest(worker: _ProcessWorker) -> int:
    return selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.unsent else 0)
