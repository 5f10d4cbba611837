"""The inline engine: workers are threads of this process, one per item."""

import asyncio
import contextlib
import queue
import threading
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import assert_never

from agentos.config.settings import wants_traceback
from agentos.core.protocol import commands, events
from agentos.core.protocol.commands import Command
from agentos.core.protocol.events import EngineEvent, WorkerEvent
from agentos.core.protocol.results import Outcome
from agentos.core.text.line_assembler import LineAssembler
from agentos.core.text.values import error_location

EXIT_GRACE = 1.0  # seconds until a killed worker that does not end is abandoned
SHUTDOWN_GRACE = 2.0  # seconds to wait for all threads when the engine is closed
EventSink = Callable[["InlineChannel", EngineEvent | WorkerEvent], None]


class InlineChannel:
    """A worker's channel to its coordinator; `send` may be called from any thread.

    `cancelled` is set when the worker is killed; `on_cancel` is called then.
    """

    def __init__(self, item: str, sink: EventSink, redact: Callable[[str], str]) -> None:
        self.item = item
        self._redact = redact
        self.cancelled = threading.Event()
        self.on_cancel: Callable[[], object] = lambda: None
        self._sink = sink
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._wake: Callable[[], object] = lambda: None

    def send(self, event: WorkerEvent) -> None:
        self._sink(self, event)

    def write_output(self, text: str) -> None:
        """Report text as the item's output, as if a process had printed it."""
        lines = LineAssembler(self._redact)
        for line in (*lines.feed(text.encode("utf-8", "replace")), *lines.close()):
            self._sink(self, events.LineWritten(self.item, line))

    def wait(self, timeout: float) -> Command | None:
        """The next command, for a worker that may block; None after the timeout."""
        try:
            return self._commands.get(timeout=timeout)
        except queue.Empty:
            return None

    async def next(self) -> Command | None:
        """The next command, for a worker with an event loop; never None, since the coordinator is this process."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(arrived.set)
        while self._commands.empty():
            arrived.clear()
            await arrived.wait()
        return self._commands.get_nowait()

    def deliver(self, command: Command) -> None:
        self._commands.put(command)
        # The worker's loop may have ended already.
        with contextlib.suppress(RuntimeError):
            self._wake()


SyncWorkerFunction = Callable[[commands.StartWorker, InlineChannel], Outcome]
AsyncWorkerFunction = Callable[[commands.StartWorker, InlineChannel], Awaitable[Outcome]]


@dataclass(slots=True)
class _InlineWorker:
    channel: InlineChannel
    thread: threading.Thread
    abandon_at: float | None = None


class InlineEngine:
    """Runs one function for every item, each in a thread.

    A thread cannot be killed: async work is cancelled, other work should check `channel.cancelled`. A thread that
    does not end soon is abandoned, and its later events are dropped.
    """

    def __init__(self, work: SyncWorkerFunction, redact: Callable[[str], str] = str) -> None:
        self._work = work
        self._redact = redact
        self._workers: dict[str, _InlineWorker] = {}
        self._events: queue.SimpleQueue[tuple[InlineChannel, EngineEvent | WorkerEvent] | None] = (
            queue.SimpleQueue()
        )

    def execute(self, command: Command) -> None:
        match command:
            case commands.StartWorker():
                self._start(command)
            case commands.KillWorker():
                self._kill(command.item)
            case commands.FreezeWorker() | commands.ThawWorker():
                pass  # threads are suspended with the process
            case commands.StopWorker() | commands.GrantLease():
                if worker := self._workers.get(command.item):
                    worker.channel.deliver(command)
            case _:
                assert_never(command)

    def receive(self, timeout: float | None) -> list[EngineEvent | WorkerEvent]:
        received: list[EngineEvent | WorkerEvent] = []
        with contextlib.suppress(queue.Empty):
            self._collect(self._events.get(timeout=self._next_timeout(timeout)), received)
            while True:
                self._collect(self._events.get_nowait(), received)
        return received + self._abandon_late()

    def wake(self) -> None:
        self._events.put(None)

    def watch(self, descriptor: int) -> None:
        """Nothing to do: `receive` waits on a queue, and its callers poll after each of its short waits."""

    def close(self) -> None:
        """Cancel all workers and wait for them; their later events are dropped."""
        workers, self._workers = self._workers, {}
        for worker in workers.values():
            _cancel(worker.channel)
        deadline = time.monotonic() + SHUTDOWN_GRACE
        for worker in workers.values():
            worker.thread.join(max(0.0, deadline - time.monotonic()))

    def _start(self, command: commands.StartWorker) -> None:
        channel = InlineChannel(command.item, self._put_event, self._redact)
        thread = threading.Thread(
            target=self._run_worker, args=(command, channel), name=command.item, daemon=True
        )
        self._workers[command.item] = _InlineWorker(channel, thread)
        try:
            thread.start()
        except RuntimeError as error:  # no more threads
            self._put_event(channel, events.WorkerStartFailed(command.item, str(error)))

    def _run_worker(self, command: commands.StartWorker, channel: InlineChannel) -> None:
        self._put_event(channel, events.WorkerStarted(command.item, threading.get_native_id()))
        cause = "returned"
        try:
            outcome = self._work(command, channel)
            channel.send(events.WorkerReported(command.item, outcome))
        except BaseException as error:
            cause = f"raised {type(error).__name__}"
            channel.write_output(traceback.format_exc() if wants_traceback() else error_location(error))
        finally:
            self._put_event(channel, events.WorkerExited(command.item, cause, clean=cause == "returned"))

    def _put_event(self, channel: InlineChannel, event: EngineEvent | WorkerEvent) -> None:
        self._events.put((channel, event))

    def _collect(
        self,
        entry: tuple[InlineChannel, EngineEvent | WorkerEvent] | None,
        received: list[EngineEvent | WorkerEvent],
    ) -> None:
        """Accept events of current workers about their own item; drop all others."""
        if entry is None:
            return
        channel, event = entry
        worker = self._workers.get(channel.item)
        if worker is None or worker.channel is not channel or event.item != channel.item:
            return
        if isinstance(event, events.WorkerExited | events.WorkerStartFailed):
            del self._workers[channel.item]
        received.append(event)

    def _kill(self, item: str) -> None:
        if (worker := self._workers.get(item)) and worker.abandon_at is None:
            worker.abandon_at = time.monotonic() + EXIT_GRACE
            _cancel(worker.channel)

    def _abandon_late(self) -> list[EngineEvent | WorkerEvent]:
        now = time.monotonic()
        late = [
            item
            for item, worker in self._workers.items()
            if worker.abandon_at is not None and now >= worker.abandon_at
        ]
        for item in late:
            del self._workers[item]
        return [
            events.WorkerExited(item, "abandoned: it did not end when killed", clean=False) for item in late
        ]

    def _next_timeout(self, timeout: float | None) -> float | None:
        deadlines = [worker.abandon_at for worker in self._workers.values() if worker.abandon_at is not None]
        if not deadlines:
            return timeout
        remaining = max(0.0, min(deadlines) - time.monotonic())
        return remaining if timeout is None else min(timeout, remaining)


def run_async(work: AsyncWorkerFunction) -> SyncWorkerFunction:
    """Adapt async work: it gets an event loop of its own, and killing the worker cancels it."""

    async def run(command: commands.StartWorker, channel: InlineChannel) -> Outcome:
        task = asyncio.ensure_future(work(command, channel))
        loop = asyncio.get_running_loop()
        channel.on_cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        if channel.cancelled.is_set():
            task.cancel()
        return await task

    return lambda command, channel: asyncio.run(run(command, channel))


def _cancel(channel: InlineChannel) -> None:
    channel.cancelled.set()
    with contextlib.suppress(RuntimeError):
        channel.on_cancel()
