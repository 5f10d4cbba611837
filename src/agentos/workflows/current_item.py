"""Finds the item that the running code works on: how `agentos.model` reaches its worker without being handed anything."""

import asyncio
import concurrent.futures
import contextlib
import contextvars
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from agentos.core.errors import ItemError
from agentos.core.protocol.ports import ModelRequest, ModelResponse, OnPiece

STOP_TIMEOUT = 30.0  # seconds; the graph of a run that stops is cancelled long before
Call = Coroutine[Any, Any, ModelResponse]
Correct = Callable[[ModelResponse], ModelRequest | None]
"""The request for a better answer than this one; None if this one is right."""


class Complete(Protocol):
    """Calls a model for a task of the graph, or for none: an empty string.

    `on_piece` gets the pieces of the answer as they arrive; none if the answer was kept from an earlier attempt. An
    answer that is not right is asked for once more, as `correct` says, unless its pieces are out already.
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
# The items at work in this process: one, or several with the inline engine. For threads that a node started itself,
# which have no context variables. Only its event loops' threads change it, each its own entry.
_active: dict[str, CurrentItem] = {}


@contextlib.contextmanager
def entered(item: CurrentItem) -> Iterator[None]:
    """Make this the current item of everything that runs inside."""
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
    """The task of the graph in which this code runs: the same again after a crash. Empty outside of a node."""
    from langgraph.runtime import get_runtime

    try:
        runtime = get_runtime()
    except (RuntimeError, KeyError):
        return ""
    info = getattr(runtime, "execution_info", None)
    return (info.task_id or "") if info else ""


def wait_for(item: CurrentItem, call: Call, instead: str) -> ModelResponse:
    """The result of a call, for synchronous code in another thread than the item's event loop.

    In the loop's own thread it would wait for itself for ever: there it raises an error that says what to write `instead`.
    """
    if is_running_on(item.loop):
        call.close()
        raise ItemError(f"a synchronous model call in an async node would block it: write {instead}")
    try:
        return asyncio.run_coroutine_threadsafe(call, item.loop).result()
    except concurrent.futures.CancelledError as error:
        # Stopped while it waited for a key: for the graph the same as for a call that is awaited.
        raise asyncio.CancelledError from error


async def result_of(item: CurrentItem, call: Call) -> ModelResponse:
    """The same for asynchronous code, also in an event loop of its own, as asyncio.run makes one."""
    if is_running_on(item.loop):
        try:
            return await call
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) and not task.cancelling():
                # The run stops, and the call had no key yet. LangChain takes a call that cancels itself for an answer, so
                # wait here until the graph is cancelled.
                await asyncio.sleep(STOP_TIMEOUT)
            raise
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, item.loop))


def is_running_on(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
