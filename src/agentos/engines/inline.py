"""Workers as threads of this process, one per item."""

import asyncio
import contextlib
import queue
import threading
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import assert_never

from agentos.core.protocol import commands, events
from agentos.core.protocol.commands import Command
from agentos.core.protocol.events import EngineEvent, WorkerEvent
from agentos.core.protocol.results import Outcome
from agentos.core.text.line_assembler import LineAssembler

EXIT_GRACE = 1.0
SHUTDOWN_GRACE = 2.0
Heard = Callable[["InlineChannel", EngineEvent | WorkerEvent], None]


class InlineChannel:
    """A worker's line to its coordinator; `tell` may be called from any thread, until it is cut."""

    def __init__(self, item: str, heard: Heard, redact: Callable[[str], str]) -> None:
        self.item = item
        self._redact = redact
        self.cancelled = threading.Event()
        self.on_cancel: Callable[[], object] = lambda: None
        self._events = heard
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._wake: Callable[[], object] = lambda: None

    def send(self, event: WorkerEvent) -> None:
        self._events(self, event)

    def say(self, text: str) -> None:
        """Output of the item, as a process would print it."""
        lines = LineAssembler(self._redact)
        for line in (*lines.feed(text.encode("utf-8", "replace")), *lines.close()):
            self._events(self, events.LineWritten(self.item, line))

    def wait(self, timeout: float) -> Command | None:
        """The next command, for a worker that may block; None when the time is over."""
        try:
            return self._commands.get(timeout=timeout)
        except queue.Empty:
            return None

    async def next(self) -> Command | None:
        """The next command, for a worker with an event loop; its coordinator is never gone before it."""
        loop, bell = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(bell.set)
        while self._commands.empty():
            bell.clear()
            await bell.wait()
        return self._commands.get_nowait()

    def deliver(self, command: Command) -> None:
        self._commands.put(command)
        # The loop may have ended together with the work.
        with contextlib.suppress(RuntimeError):
            self._wake()


SyncWorkerFunction = Callable[[commands.StartWorker, InlineChannel], Outcome]
AsyncWorkerFunction = Callable[[commands.StartWorker, InlineChannel], Awaitable[Outcome]]


@dataclass(slots=True)
class _InlineWorker:
    channel: InlineChannel
    thread: threading.Thread
    given_up_at: float | None = None


class InlineEngine:
    """Runs one function for every item.

    A thread cannot be killed: work that awaits is cancelled; other work may look at `channel.cut`, and if it
    does not end soon it is given up on, unheard from then on.
    """

    def __init__(self, work: SyncWorkerFunction, redact: Callable[[str], str] = str) -> None:
        self._work = work
        self._redact = redact
        self._workers: dict[str, _InlineWorker] = {}
        self._events: queue.SimpleQueue[tuple[InlineChannel, EngineEvent | WorkerEvent] | None] = (
            queue.SimpleQueue()
        )

    # The port.

    def execute(self, command: Command) -> None:
        match command:
            case commands.StartWorker():
                self._start(command)
            case commands.KillWorker():
                self._kill(command.item)
            case commands.FreezeWorker() | commands.ThawWorker():
                pass  # threads stand still with the process
            case commands.StopWorker() | commands.GrantLease():
                if worker := self._workers.get(command.item):
                    worker.channel.deliver(command)
            case _:
                assert_never(command)

    def receive(self, timeout: float | None) -> list[EngineEvent | WorkerEvent]:
        told: list[EngineEvent | WorkerEvent] = []
        with contextlib.suppress(queue.Empty):
            self._take(self._events.get(timeout=self._shortened(timeout)), told)
            while True:
                self._take(self._events.get_nowait(), told)
        return told + self._given_up()

    def wake(self) -> None:
        self._events.put(None)

    def watch(self, descriptor: int) -> None:
        """Its wait is on a queue: what can be read is noticed when the wait is over, as each is soon."""

    def close(self) -> None:
        """Nobody is heard any more; work that can be cancelled has ended when this returns."""
        workers, self._workers = self._workers, {}
        for worker in workers.values():
            _cancel(worker.channel)
        deadline = time.monotonic() + SHUTDOWN_GRACE
        for worker in workers.values():
            worker.thread.join(max(0.0, deadline - time.monotonic()))

    # One worker.

    def _start(self, command: commands.StartWorker) -> None:
        channel = InlineChannel(command.item, self._put_event, self._redact)
        thread = threading.Thread(
            target=self._run_worker, args=(command, channel), name=command.item, daemon=True
        )
        self._workers[command.item] = _InlineWorker(channel, thread)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no thread left
            self._put_event(channel, events.WorkerStartFailed(command.item, str(error)))

    def _run_worker(self, command: commands.StartWorker, channel: InlineChannel) -> None:
        self._put_event(channel, events.WorkerStarted(command.item, threading.get_native_id()))
        cause = "returned"
        try:
            outcome = self._work(command, channel)
            channel.send(events.WorkerReported(command.item, outcome))
        except BaseException as error:
            cause = f"raised {type(error).__name__}"
            channel.say(traceback.format_exc())
        finally:
            self._put_event(channel, events.WorkerExited(command.item, cause, clean=cause == "returned"))

    def _put_event(self, channel: InlineChannel, event: EngineEvent | WorkerEvent) -> None:
        self._events.put((channel, event))

    def _take(
        self,
        heard: tuple[InlineChannel, EngineEvent | WorkerEvent] | None,
        told: list[EngineEvent | WorkerEvent],
    ) -> None:
        """A worker speaks for its own item alone, and no longer than it is ours."""
        if heard is None:
            return
        channel, event = heard
        worker = self._workers.get(channel.item)
        if worker is None or worker.channel is not channel or event.item != channel.item:
            return
        if isinstance(event, events.WorkerExited | events.WorkerStartFailed):
            del self._workers[channel.item]
        told.append(event)

    def _kill(self, item: str) -> None:
        if (worker := self._workers.get(item)) and worker.given_up_at is None:
            worker.given_up_at = time.monotonic() + EXIT_GRACE
            _cancel(worker.channel)

    def _given_up(self) -> list[EngineEvent | WorkerEvent]:
        now = time.monotonic()
        late = [
            item
            for item, worker in self._workers.items()
            if worker.given_up_at is not None and now >= worker.given_up_at
        ]
        for item in late:
            del self._workers[item]
        return [events.WorkerExited(item, "given up on: it did not end", clean=False) for item in late]

    def _shortened(self, timeout: float | None) -> float | None:
        ends = [worker.given_up_at for worker in self._workers.values() if worker.given_up_at is not None]
        if not ends:
            return timeout
        rest = max(0.0, min(ends) - time.monotonic())
        return rest if timeout is None else min(timeout, rest)


def awaited(work: AsyncWorkerFunction) -> SyncWorkerFunction:
    """Work that has an event loop of its own; when it is killed it is cancelled where it awaits."""

    async def live(command: commands.StartWorker, channel: InlineChannel) -> Outcome:
        task = asyncio.ensure_future(work(command, channel))
        loop = asyncio.get_running_loop()
        channel.on_cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        if channel.cancelled.is_set():
            task.cancel()
        return await task

    return lambda command, channel: asyncio.run(live(command, channel))


def _cancel(channel: InlineChannel) -> None:
    channel.cancelled.set()
    with contextlib.suppress(RuntimeError):
        channel.on_cancel()
