"""Finds the item that the running code works on, so that `agentos.model` reaches its worker without being passed a
context."""

import asyncio
import concurrent.futures
import contextlib
import contextvars
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from agentos.core.errors import ItemError
from agentos.core.protocol.ports import ModelRequest, ModelResponse, OnPiece

STOP_TIMEOUT = 30.0  # seconds; a stopping run cancels its graphs long before that
Call = Coroutine[Any, Any, ModelResponse]
Correct = Callable[[ModelResponse], ModelRequest | None]
"""Returns the request for a corrected answer; None if this answer is valid."""


class Complete(Protocol):
    """Calls a model for a task of the graph; the task is empty outside of one.

    `on_piece` gets the pieces of the answer as they arrive; none if the answer was kept from an earlier attempt. If
    `correct` rejects the answer, the model is asked once more, unless pieces of it have been passed on already.
    """

    def __call__(
        self,
        task: str,
        request: ModelRequest,
        on_piece: OnPiece | None = None,
        correct: Correct | None = None,
    ) -> Call: ...


@dataclass(frozen=True, slots=True)
class CurrentItem:
    """The item, the event loop that its graph runs on, and its model calls, which must be made on that loop."""

    id: str
    loop: asyncio.AbstractEventLoop
    complete: Complete


_current: contextvars.ContextVar[CurrentItem] = contextvars.ContextVar("agentos_current_item")
# The items running in this process: one, or several with the inline engine. For threads that a node started itself,
# which have no context variables. Each event loop's thread changes only its own entry.
_active: dict[str, CurrentItem] = {}


@contextlib.contextmanager
def entered(item: CurrentItem) -> Iterator[None]:
    """Make this the current item of everything that runs inside the block."""
    token = _current.set(item)
    _active[item.id] = item
    try:
        yield
    finally:
        _active.pop(item.id, None)
        _current.reset(token)


def current_item() -> CurrentItem | None:
    found = _current.get(None)
    if found is None and len(_active) == 1:
        return next(iter(_active.values()), None)
    return found


def current_task() -> str:
    """The graph's task that runs this code; its id stays the same after a crash. Empty outside of a node."""
    from langgraph.runtime import get_runtime

    try:
        runtime = get_runtime()
    except (RuntimeError, KeyError):
        return ""
    info = getattr(runtime, "execution_info", None)
    return (info.task_id or "") if info else ""


def wait_for(item: CurrentItem, call: Call, instead: str) -> ModelResponse:
    """Wait for the result of a call in synchronous code, outside the thread of the item's event loop.

    In the loop's own thread this would deadlock, so it raises an error that says what to write `instead`.
    """
    if is_running_on(item.loop):
        call.close()
        raise ItemError(f"a synchronous model call in an async node would block it: write {instead}")
    try:
        return asyncio.run_coroutine_threadsafe(call, item.loop).result()
    except concurrent.futures.CancelledError as error:
        # Stopped while waiting for a key: to the graph, this looks like an awaited call.
        raise asyncio.CancelledError from error


async def result_of(item: CurrentItem, call: Call) -> ModelResponse:
    """The same for asynchronous code, even in an event loop that asyncio.run created."""
    if is_running_on(item.loop):
        try:
            return await call
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) and not task.cancelling():
                # The run is stopping, and the call has no key yet. LangChain mistakes a call that cancels itself for an
                # answer, so wait here until the graph is cancelled.
                await asyncio.sleep(STOP_TIMEOUT)
            raise
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, item.loop))


def is_running_on(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
