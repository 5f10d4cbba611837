"""Speaks HTTP/1.1 on one connection."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl, unquote, urlsplit

import h11

from .talk import Ending, Reply, Request, whole

Attend = Callable[[Request, Callable[[Reply], Awaitable[None]]], Awaitable[None]]

MOST_BODY = 32 * 1024 * 1024
# small pieces go out together: a call to the kernel costs more than the copy
ENOUGH_TO_SEND = 65536
# closing with these options discards what is queued, which the other side sees as a reset
LINGER_NOT = struct.pack("ii", 1, 0)


class Connection(asyncio.Protocol):
    """Requests one after another; a client that goes away cancels the one under way."""

    def __init__(self, attend: Attend, connections: set["Connection"]) -> None:
        self._attend = attend
        self._connections = connections
        self._http = h11.Connection(h11.SERVER)
        self._writable = asyncio.Event()
        self._writable.set()
        self._task: asyncio.Task[None] | None = None
        self._head: h11.Request | None = None
        self._body = bytearray()
        self._outgoing = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._writable.set()
        if self._task:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._http.receive_data(data)
        self._advance()

    def drop(self) -> "asyncio.Task[None] | None":
        """Ends it at once; the task, if any, is on its way out."""
        self._transport.abort()
        if self._task:
            self._task.cancel()
        return self._task

    def _advance(self) -> None:
        try:
            while self._take(self._http.next_event()):
                pass
        except h11.RemoteProtocolError as error:
            self._give_up(error.error_status_hint)

    def _take(self, event: object) -> bool:
        """True while there may be more to take."""
        match event:
            case h11.Request():
                self._head, self._body = event, bytearray()
                self._go_ahead()
            case h11.Data():
                self._body += event.data
                if len(self._body) > MOST_BODY:
                    raise h11.RemoteProtocolError("body too large", error_status_hint=413)
            case h11.EndOfMessage():
                self._task = asyncio.ensure_future(self._exchange())
            case h11.ConnectionClosed():
                self._transport.close()
                return False
            case _:
                return False
        return True

    def _go_ahead(self) -> None:
        if self._http.they_are_waiting_for_100_continue:
            self._write(h11.InformationalResponse(status_code=100, headers=[]))
            self._flush()

    async def _exchange(self) -> None:
        assert self._head is not None
        try:
            await self._attend(_request(self._head, bytes(self._body)), self._send)
        finally:
            self._go_on()

    def _go_on(self) -> None:
        """To the next request, or to the end where this one was not answered as a whole."""
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self._advance()
        elif not self._transport.is_closing():
            self._transport.close()

    async def _send(self, reply: Reply) -> None:
        if reply.ending is Ending.SILENCE:
            # ends when the client goes away or the server stops: both cancel it
            await asyncio.get_running_loop().create_future()
        if reply.ending is Ending.RESET_AT_ONCE:
            self._reset()
            return
        self._write(h11.Response(status_code=reply.status, headers=_headers(reply)))
        for piece in reply.body:
            await self._wait(reply.pause)
            self._write(h11.Data(data=piece))
        self._end(reply.ending)

    def _end(self, ending: Ending) -> None:
        if ending is not Ending.RESET_MIDWAY:
            self._write(h11.EndOfMessage())
        self._flush()
        if ending is Ending.RESET_MIDWAY:
            self._reset()

    async def _wait(self, pause: float) -> None:
        if pause or len(self._outgoing) > ENOUGH_TO_SEND:
            self._flush()
        if pause:
            await asyncio.sleep(pause)
        await self._writable.wait()

    def _write(self, event: h11.Event) -> None:
        self._outgoing += self._http.send(event) or b""

    def _flush(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(bytes(self._outgoing))
        self._outgoing.clear()

    def _reset(self) -> None:
        wire: socket.socket | None = self._transport.get_extra_info("socket")
        if wire is not None:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
        self._transport.abort()

    def _give_up(self, status: int) -> None:
        reply = whole(status, "text/plain", b"")
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._write(
                h11.Response(
                    status_code=status,
                    headers=[*_headers(reply), ("connection", "close")],
                )
            )
            self._write(h11.EndOfMessage())
            self._flush()
        self._transport.close()


def _request(head: h11.Request, body: bytes) -> Request:
    target = urlsplit(head.target.decode("latin-1"))
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
    return Request(
        head.method.decode(),
        unquote(target.path),
        dict(parse_qsl(target.query)),
        headers,
        body,
    )


def _headers(reply: Reply) -> list[tuple[str, str]]:
    framing = (
        ("transfer-encoding", "chunked") if reply.length is None else ("content-length", str(reply.length))
    )
    return [*reply.headers, framing]
