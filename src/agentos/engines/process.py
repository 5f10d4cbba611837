"""Workers as local processes, one per item."""

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
from agentos.engines.template_client import TemplateProcess, WorkerSpec

CHUNK = 65536
EXIT_GRACE = 1.0
SHUTDOWN_GRACE = 0.3
Told = list[EngineEvent | WorkerEvent]


@dataclass(slots=True)
class _ProcessWorker:
    """The coordinator's end of one worker: its channel and its output, until both have ended."""

    item: str
    channel: socket.socket
    output: int
    lines: LineAssembler
    unread: bytes = b""
    open: set[int] = field(default_factory=set)
    status: int | None = None
    given_up_at: float | None = None
    stops: bool = False


class ProcessEngine:
    """Forks workers from a template process, reads what they say, ends them.

    It may be given a template that was started before it, by the same recipe; then that one is its own.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        order: Callable[[commands.StartWorker], str],
        redact: Callable[[str], str],
        template: TemplateProcess | None = None,
    ) -> None:
        self._spec = spec
        self._task_for = order
        self._redact = redact
        self._selector = selectors.DefaultSelector()
        self._wakeup_r, self._wakeup_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wakeup_r, selectors.EVENT_READ, self._drain_wakeup)
        self._workers: dict[str, _ProcessWorker] = {}
        self._events: Told = []
        self._has_worked = False
        self._is_ready = False
        self._is_reached = False
        self._template = template
        if template is not None:
            self._reach(template)

    # The port.

    def warm_up(self) -> None:
        """Starts the template, whose imports take a second, before the first worker is wanted."""
        if not self._is_reached:
            self._template = TemplateProcess(self._spec)
            self._reach(self._template)

    def execute(self, command: Command) -> None:
        match command:
            case commands.StartWorker():
                self._start(command)
            case commands.KillWorker():
                self._send_control({"kill": command.item})
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

    def receive(self, timeout: float | None) -> Told:
        for key, _ in self._selector.select(self._shortened(timeout)):
            # What was heard before may have closed it.
            if self._selector.get_map().get(key.fd) is key:
                key.data()
        self._give_up_on_silent()
        told, self._events = self._events, []
        return told

    def wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wakeup_w, b"!")

    def watch(self, descriptor: int) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, lambda: None)

    def close(self) -> None:
        self._disconnect()
        for worker in list(self._workers.values()):
            for descriptor in list(worker.open):
                self._close(worker, descriptor)
        if self._template is not None:
            self._template.close(SHUTDOWN_GRACE if self._has_worked else 0.0)
        self._selector.close()
        os.close(self._wakeup_r)
        os.close(self._wakeup_w)

    # The template.

    def _reach(self, template: TemplateProcess) -> None:
        """What all processes of the run hold is given to it before anything else."""
        self._is_ready = False
        self._is_reached = True
        self._selector.register(template, selectors.EVENT_READ, self._handle_template)
        if self._spec.inherited:
            template.send({"hold": "this"}, self._spec.inherited)

    def _handle_template(self) -> None:
        assert self._template is not None
        if news := self._template.receive():
            self._is_ready = True
            self._handle_template_message(news)
        else:
            self._lose_template()

    def _handle_template_message(self, news: dict[str, object]) -> None:
        match news:
            case {"started": str(item), "pid": int(pid)}:
                self._events.append(events.WorkerStarted(item, pid))
            case {"failed": str(item), "reason": str(reason)}:
                self._drop(self._workers.pop(item))
                self._events.append(events.WorkerStartFailed(item, reason))
            case {"ended": str(item), "status": int(status)}:
                self._workers[item].status = status
                self._workers[item].given_up_at = time.monotonic() + EXIT_GRACE
                self._end_if_over(self._workers[item])

    def _stop_early(self, item: str) -> None:
        """Nobody waits for what is being loaded for workers of which none is wanted any more."""
        if worker := self._workers.get(item):
            worker.stops = True
        if self._is_ready or self._template is None or not all(one.stops for one in self._workers.values()):
            return
        self._template.kill()
        self._disconnect()
        for worker in list(self._workers.values()):
            self._events.append(events.WorkerReported(worker.item, Outcome(Ending.INTERRUPTED)))
            worker.status = 0
            self._drop(worker)

    def _lose_template(self) -> None:
        """Its children die with it, by the kernel's hand; each channel's end tells when."""
        self._disconnect()
        for worker in list(self._workers.values()):
            worker.status = -signal.SIGKILL if worker.status is None else worker.status
            worker.given_up_at = time.monotonic() + EXIT_GRACE
            self._end_if_over(worker)

    def _disconnect(self) -> None:
        if self._template is not None and self._is_reached:
            self._is_reached = False
            self._selector.unregister(self._template)
            self._template.disconnect()

    def _send_control(self, message: dict[str, str], descriptors: tuple[int, ...] = ()) -> None:
        if self._template is not None and self._is_reached:
            self._template.send(message, descriptors)

    # One worker.

    def _start(self, command: commands.StartWorker) -> None:
        try:
            self.warm_up()
            ours, theirs = socket.socketpair()
            reading, writing = os.pipe2(os.O_CLOEXEC)
        except OSError as error:
            self._events.append(events.WorkerStartFailed(command.item, str(error)))
            return self.wake()
        worker = _ProcessWorker(command.item, ours, reading, LineAssembler(self._redact))
        worker.open = {ours.fileno(), reading}
        self._workers[command.item] = worker
        self._has_worked = True
        self._selector.register(ours, selectors.EVENT_READ, lambda: self._read_channel(worker))
        self._selector.register(reading, selectors.EVENT_READ, lambda: self._read_output(worker))
        self._send_control({"start": command.item}, (theirs.fileno(), writing))
        theirs.close()
        os.close(writing)
        self._send(command.item, self._task_for(command))

    def _send(self, item: str, line: str) -> None:
        """A worker that is gone, or does not read, misses it; its end is told in its own time."""
        if worker := self._workers.get(item):
            with contextlib.suppress(OSError):
                worker.channel.sendall(line.encode() + b"\n", socket.MSG_DONTWAIT)

    def _read_channel(self, worker: _ProcessWorker) -> None:
        try:
            chunk = worker.channel.recv(CHUNK)
        except ConnectionError:
            chunk = b""
        if not chunk:
            return self._close(worker, worker.channel.fileno())
        *lines, worker.unread = (worker.unread + chunk).split(b"\n")
        for line in lines:
            self._handle_worker_message(worker, line)

    def _handle_worker_message(self, worker: _ProcessWorker, line: bytes) -> None:
        """A worker speaks for its own item alone."""
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
        self._selector.unregister(descriptor)
        if descriptor == worker.output:
            os.close(descriptor)
        else:
            worker.channel.close()
        self._end_if_over(worker)

    def _end_if_over(self, worker: _ProcessWorker) -> None:
        if worker.status is not None and not worker.open and worker.item in self._workers:
            del self._workers[worker.item]
            self._events.append(events.WorkerExited(worker.item, _cause(worker.status), worker.status == 0))

    def _give_up_on_silent(self) -> None:
        """The process has ended, but somebody it left behind keeps its output open."""
        now = time.monotonic()
        for worker in list(self._workers.values()):
            if worker.given_up_at is not None and now >= worker.given_up_at:
                self._events.extend(events.LineWritten(worker.item, line) for line in worker.lines.close())
                self._drop(worker)

    def _drop(self, worker: _ProcessWorker) -> None:
        for descriptor in list(worker.open):
            self._close(worker, descriptor)

    def _shortened(self, timeout: float | None) -> float | None:
        if self._events:
            return 0.0
        ends = [worker.given_up_at for worker in self._workers.values() if worker.given_up_at is not None]
        if not ends:
            return timeout
        rest = max(0.0, min(ends) - time.monotonic())
        return rest if timeout is None else min(timeout, rest)

    def _drain_wakeup(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakeup_r, 4096)


def _cause(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
