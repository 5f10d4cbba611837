"""An event loop with a virtual clock, and processes in it that can be frozen, thawed and killed."""

import asyncio
import contextlib
import contextvars
import heapq
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar

Result = TypeVar("Result")
Callback = Callable[..., object]
MIN_CANCELLED = 100  # timers, before they are removed


class VirtualProcess:
    """Everything that runs in its name stops while it is frozen, and for good when it is killed, as with kill -9."""

    def __init__(self, name: str, parent: "VirtualProcess | None" = None) -> None:
        self.name = name
        self.is_alive: bool = parent is None or parent.is_alive
        self.is_frozen: bool = parent is not None and parent.is_frozen
        self.parked: list[_Handle] = []
        self.on_death: list[Callable[[], None]] = []
        self._children: list[VirtualProcess] = []
        self._context = contextvars.copy_context()
        self._context.run(_process.set, self)
        if parent is not None:
            parent._children = [child for child in parent._children if child.is_alive]
            parent._children.append(self)

    @property
    def runs(self) -> bool:
        return self.is_alive and not self.is_frozen

    def spawn(self, work: Coroutine[Any, Any, Result]) -> "asyncio.Task[Result]":
        loop = asyncio.get_running_loop()
        return loop.create_task(work, context=self._context.copy())

    def call_later(self, seconds: float, callback: Callback, *args: object) -> "_Handle":
        loop = _running_loop()
        return loop.call_at(loop.time() + seconds, callback, *args, context=self._context.copy())

    def freeze(self) -> None:
        self.is_frozen = True
        for child in self._children:
            child.freeze()

    def thaw(self) -> None:
        if self.is_alive and self.is_frozen:
            self.is_frozen = False
            parked, self.parked = self.parked, []
            for handle in parked:
                handle.loop.ready.append(handle)
            for child in self._children:
                child.thaw()

    def kill(self) -> None:
        """Whoever is connected to it notices, as when the kernel closes a dead process's connections."""
        if not self.is_alive:
            return
        _running_loop().keep_tasks()
        self.exit()

    def exit(self) -> None:
        """As `kill`, when nothing is left to do."""
        self.is_alive = False
        for child in self._children:
            if child.is_alive:
                child.exit()
        for tell in list(self.on_death):
            tell()


_process: contextvars.ContextVar[VirtualProcess | None] = contextvars.ContextVar("process", default=None)


def current_process() -> VirtualProcess | None:
    """The process in whose name this code runs."""
    return _process.get()


class _Pause:
    """Hands control to the loop, which resumes the task after `VirtualLoop.pause`."""

    def __await__(self) -> Generator[None, None, None]:
        yield


_PAUSE = _Pause()


def pause(seconds: float) -> Awaitable[None]:
    """As `asyncio.sleep`, at half the cost; await it at once. A cancellation arrives at its end, so it should be short."""
    _running_loop().pause = seconds
    return _PAUSE


class _Handle:
    __slots__ = ("args", "callback", "context", "is_timer", "loop", "moment")

    def __init__(
        self,
        loop: "VirtualLoop",
        callback: Callback | None,
        args: tuple[Any, ...],
        context: contextvars.Context | None,
        moment: float,
        is_timer: bool = False,
    ) -> None:
        self.is_timer = is_timer
        self.loop = loop
        self.callback = callback
        self.args = args
        self.context = contextvars.copy_context() if context is None else context
        self.moment = moment

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback, self.args = None, ()
            if self.is_timer:
                self.loop.count_cancelled()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.moment


def _running_loop() -> "VirtualLoop":
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


class VirtualLoop(asyncio.AbstractEventLoop):
    """Waiting takes no time: the clock jumps from one callback to the next. Threads do not exist.

    What is given to an executor runs at once; if it returns a coroutine, that is awaited in its place.
    """

    def __init__(self, start: float = 1000.0) -> None:
        self.ready: deque[_Handle] = deque()
        self.errors: list[BaseException] = []
        self.steps = 0
        self.pause: float | None = None
        self._cancelled = 0  # timers
        self._now = start
        self._timers: list[tuple[float, int, _Handle]] = []
        self._numbers = itertools.count()
        self._kept: set[asyncio.Task[Any]] = set()
        self._dropped: list[_Handle] = []  # of dead processes; kept so that none of their tasks is collected

    def run(self, main: Coroutine[Any, Any, Result], until: float = float("inf")) -> Result:
        """Runs `main` to its end, then drops everything else. Raises TimeoutError when the clock passes `until`."""
        asyncio._set_running_loop(self)
        try:
            task = self.create_task(main)
            while not task.done():
                self._advance()
                self._run_ready()
                if self._now > until:
                    raise TimeoutError(f"not over after {until:g} s")
                if self.errors:
                    raise self.errors[0]
            result: Result = task.result()
            return result
        finally:
            self._drop_everything()
            asyncio._set_running_loop(None)

    def _advance(self) -> None:
        """Set the clock to the next timer if nothing else is ready, and make the timers that are due ready."""
        ready, timers = self.ready, self._timers
        if not ready:
            while timers and timers[0][2].callback is None:
                heapq.heappop(timers)
                self._cancelled -= 1
            assert timers, f"nothing is left to happen at {self._now:g} s"
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            handle = heapq.heappop(timers)[2]
            handle.is_timer = False
            if handle.callback is None:
                self._cancelled -= 1
            else:
                ready.append(handle)

    def _run_ready(self) -> None:
        next_ready = self.ready.popleft
        for _ in range(len(self.ready)):
            handle = next_ready()
            callback, context = handle.callback, handle.context
            if callback is None:
                continue
            process = context.get(_process)
            if process is None or (process.is_alive and not process.is_frozen):
                self.steps += 1
                context.run(callback, *handle.args)
            elif process.is_alive:
                process.parked.append(handle)
            else:
                self._dropped.append(handle)

    def count_cancelled(self) -> None:
        """Remove cancelled timers once they are the majority, as asyncio does: most of them would be due much later."""
        self._cancelled += 1
        if self._cancelled > MIN_CANCELLED and self._cancelled > len(self._timers) // 2:
            self._timers = [timer for timer in self._timers if timer[2].callback is not None]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def keep_tasks(self) -> None:
        """Those of a killed process will never run again, nor may anything of them run when they are collected.

        Those of other processes are kept until they are done.
        """
        self._kept = {task for task in self._kept if not task.done()} | asyncio.all_tasks(self)

    def _drop_everything(self) -> None:
        for task in [*asyncio.all_tasks(self), *self._kept]:
            setattr(task, "_log_destroy_pending", False)  # noqa: B010 - no public way
            found = task.get_coro()
            if found is not None:
                with contextlib.suppress(BaseException):
                    found.close()
        self.ready.clear()
        self._timers.clear()

    # What asyncio asks of a loop.

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Callback, *args: Any, context: contextvars.Context | None = None
    ) -> _Handle:
        if self.pause is not None:  # set just before the task yielded
            seconds, self.pause = self.pause, None
            return self.call_at(self._now + seconds, callback, *args, context=context)
        handle = _Handle(self, callback, args, context, self._now)
        self.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callback, *args: Any, context: contextvars.Context | None = None
    ) -> _Handle:
        handle = _Handle(self, callback, args, context, when, True)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callback, *args: Any, context: contextvars.Context | None = None
    ) -> _Handle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> "asyncio.Task[Any]":
        return asyncio.Task(coro, loop=self, **options)

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        try:
            found = func(*args)
        except Exception as error:
            failed = self.create_future()
            failed.set_exception(error)
            return failed
        if asyncio.iscoroutine(found):
            return self.create_task(found)
        done = self.create_future()
        done.set_result(found)
        return done

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A callback that fails is a fault of the simulation or of the product: it ends the life."""
        error = context.get("exception")
        self.errors.append(error if isinstance(error, BaseException) else RuntimeError(str(context)))


def new_loop(start: float = 1000.0) -> VirtualLoop:
    """A loop without what nobody here uses: sockets, signals, processes."""
    return VirtualLoop(start)  # type: ignore[abstract]
