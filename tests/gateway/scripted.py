"""A provider that sends exactly the bytes a test specifies."""

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agentos.http.connection import Connection, Handler
from agentos.http.server import listening


@contextmanager
def provider(handler: Handler) -> Iterator[str]:
    """Serves while the context is open; yields the URL."""
    up: queue.Queue[tuple[str, Callable[[], object]]] = queue.Queue()

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with listening(handler, max_body=1 << 28) as url:
            up.put((url, lambda: loop.call_soon_threadsafe(stop.set)))
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    url, stop = up.get(timeout=5)
    try:
        yield url
    finally:
        stop()
        thread.join(5)


def whole(out: Connection, status: int, body: bytes, *headers: tuple[str, str]) -> None:
    out.begin(status, [("content-type", "application/json"), ("content-length", str(len(body))), *headers])
    out.put(body)
    out.finish()


async def events(out: Connection, *pieces: bytes) -> None:
    """Starts an event stream, without ending it."""
    out.begin(200, [("content-type", "text/event-stream")])
    for piece in pieces:
        out.put(piece)
        await out.flush()
