"""Listens on a loopback address."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agentos.http.connection import MOST_BODY, Connection, Handler
from agentos.http.loopback import loopback, url_of

CLOSE_GRACE = 0.2


@asynccontextmanager
async def listening(
    attend: Handler, *, host: str = "127.0.0.1", port: int = 0, most_body: int = MOST_BODY
) -> AsyncIterator[str]:
    """Gives its URL; at the end every connection is dropped."""
    connections: set[Connection] = set()
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(attend, connections, most_body), loopback(host), port, backlog=1024
    )
    try:
        yield url_of(server)
    finally:
        server.close()
        await _drop(connections)


async def _drop(connections: set[Connection]) -> None:
    """Waits a moment for the calls under way to put down that they were dropped."""
    tasks = [task for connection in tuple(connections) if (task := connection.drop())]
    if tasks:
        await asyncio.wait(tasks, timeout=CLOSE_GRACE)
