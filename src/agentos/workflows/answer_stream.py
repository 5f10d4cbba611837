"""Passes the pieces of a streamed answer from the item's event loop to the node that reads them."""

import asyncio
import concurrent.futures
import queue
from collections.abc import AsyncGenerator, Callable, Generator

from agentos.core.errors import ItemError
from agentos.core.protocol.ports import AnswerPiece, ModelResponse, OnPiece
from agentos.workflows.current_item import STOP_TIMEOUT, Call, CurrentItem, is_running_on

Begin = Callable[[OnPiece], Call]


def stream_from(
    item: CurrentItem, begin: Begin, instead: str
) -> Generator[AnswerPiece | ModelResponse, None, None]:
    """Yield the pieces, then the whole answer, for synchronous code outside the thread of the item's event loop.

    A reader that stops early ends the call, which frees its key; nothing is kept.
    """
    if is_running_on(item.loop):
        raise ItemError(f"a synchronous model call in an async node would block it: write {instead}")
    arrived: queue.SimpleQueue[AnswerPiece | None] = queue.SimpleQueue()
    call = asyncio.run_coroutine_threadsafe(begin(arrived.put), item.loop)
    call.add_done_callback(lambda _: arrived.put(None))
    try:
        while (piece := arrived.get()) is not None:
            yield piece
        yield call.result()
    except concurrent.futures.CancelledError as error:
        raise asyncio.CancelledError from error  # as with an awaited call
    finally:
        call.cancel()


async def astream_from(item: CurrentItem, begin: Begin) -> AsyncGenerator[AnswerPiece | ModelResponse, None]:
    """The same for asynchronous code, even in a different event loop."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[AnswerPiece | None] = asyncio.Queue()
    call: asyncio.Future[ModelResponse]
    if is_running_on(item.loop):
        call = asyncio.ensure_future(begin(arrived.put_nowait))
    else:

        def put(piece: AnswerPiece) -> None:
            loop.call_soon_threadsafe(arrived.put_nowait, piece)

        call = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(begin(put), item.loop))
    call.add_done_callback(lambda _: arrived.put_nowait(None))
    try:
        while (piece := await arrived.get()) is not None:
            yield piece
        if call.cancelled():
            # The run is stopping, and the call has no key yet: wait here until the graph is cancelled.
            await asyncio.sleep(STOP_TIMEOUT)
        yield await call
    finally:
        call.cancel()
        await asyncio.wait([call])
        if not call.cancelled():
            call.exception()  # the reader already has it, or does not want it
