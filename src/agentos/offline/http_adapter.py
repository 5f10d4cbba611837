"""Carries requests to the neutral words, replies back to the connection."""

import asyncio
from urllib.parse import parse_qsl, unquote, urlsplit

from agentos.http.connection import Connection, HttpRequest
from agentos.offline.vendors.neutral import NeutralRequest, Reply, ReplyEnding

# small pieces go out together: a call to the kernel costs more than the copy
ENOUGH_TO_SEND = 65536


def request_of(incoming: HttpRequest) -> NeutralRequest:
    target = urlsplit(incoming.target)
    return NeutralRequest(
        incoming.method,
        unquote(target.path),
        dict(parse_qsl(target.query)),
        dict(incoming.headers),
        incoming.body,
    )


async def deliver(reply: Reply, connection: Connection) -> None:
    if reply.ending is ReplyEnding.SILENCE:
        # ends when the client goes away or the server stops: both cancel it
        await asyncio.get_running_loop().create_future()
    if reply.ending is ReplyEnding.RESET_AT_ONCE:
        connection.reset()
        return
    connection.begin(reply.status, _headers(reply))
    for piece in reply.body:
        if reply.pause or connection.pending > ENOUGH_TO_SEND:
            await connection.flush()
        if reply.pause:
            await asyncio.sleep(reply.pause)
        connection.put(piece)
    if reply.ending is ReplyEnding.RESET_MIDWAY:
        connection.reset()
    else:
        connection.finish()


def _headers(reply: Reply) -> list[tuple[str, str]]:
    framing = (
        ("transfer-encoding", "chunked") if reply.length is None else ("content-length", str(reply.length))
    )
    return [*reply.headers, framing]
