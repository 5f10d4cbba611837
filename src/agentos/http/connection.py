"""Speaks HTTP/1.1 on one connection."""

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

import h11

Headers = tuple[tuple[str, str], ...]

MOST_BODY = 32 * 1024 * 1024
# What a client sends ahead of its turn; beyond it, it has to wait.
MOST_AHEAD = 65536
# Closing with these options discards what is queued, which the other side sees as a reset.
SO_LINGER_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request as it came; the names of headers are in lower case."""

    method: str
    target: str
    headers: Headers
    body: bytes = field(repr=False)


class Connection(asyncio.Protocol):
    """Requests one after another; a client that goes away cancels the one under way.

    Whoever attends to a request calls `begin`, then `put` and `flush` as often as there is something to say,
    then `finish`; one that returns before that ends the connection.
    """

    def __init__(self, attend: "Handler", connections: set["Connection"], most_body: int = MOST_BODY) -> None:
        self._handler = attend
        self._connections = connections
        self._most_body = most_body
        self._http = h11.Connection(h11.SERVER)
        self._writable = asyncio.Event()
        self._writable.set()
        self._task: asyncio.Task[None] | None = None
        self._head: h11.Request | None = None
        self._body = bytearray()
        self._ahead = 0
        self._outgoing = bytearray()

    # What the loop tells.

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
        if self._http.their_state is h11.DONE:
            self._ahead += len(data)
            if self._ahead > MOST_AHEAD:
                self._transport.pause_reading()
        else:
            self._advance()

    def drop(self) -> "asyncio.Task[None] | None":
        """Ends it at once; the task, if any, is on its way out."""
        self._transport.abort()
        if self._task:
            self._task.cancel()
        return self._task

    # What the answer is made of.

    def begin(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        self._write(h11.Response(status_code=status, headers=encoded))

    def put(self, piece: bytes) -> None:
        if piece:
            self._write(h11.Data(data=piece))

    async def flush(self) -> None:
        """Sends what was put; waits while the client reads too slowly."""
        self._send_out()
        await self._writable.wait()

    def finish(self) -> None:
        self._write(h11.EndOfMessage())
        self._send_out()

    def reset(self) -> None:
        """The client sees a broken connection."""
        self._send_out()
        wire: socket.socket | None = self._transport.get_extra_info("socket")
        if wire is not None:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, SO_LINGER_RESET)
        self._transport.abort()

    @property
    def pending(self) -> int:
        """Bytes that were put, but not sent yet."""
        return len(self._outgoing)

    # How requests are taken.

    def _advance(self) -> None:
        try:
            while self._take(self._http.next_event()):
                pass
        except h11.RemoteProtocolError as error:
            self._give_up(error)

    def _take(self, event: object) -> bool:
        """True while there may be more to take."""
        match event:
            case h11.Request():
                self._head, self._body = event, bytearray()
                self._go_ahead()
            case h11.Data():
                self._body += event.data
                if len(self._body) > self._most_body:
                    size = self._most_body // 1024 // 1024
                    raise h11.RemoteProtocolError(f"the body is over {size} MB", error_status_hint=413)
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
            self._send_out()

    async def _exchange(self) -> None:
        assert self._head is not None
        incoming, self._body = _incoming(self._head, bytes(self._body)), bytearray()
        try:
            await self._handler(incoming, self)
        finally:
            self._go_on()

    def _go_on(self) -> None:
        """To the next request, or to the end where this one was not answered as a whole."""
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self._ahead = 0
            self._transport.resume_reading()
            self._advance()
        elif not self._transport.is_closing():
            self._transport.close()

    def _write(self, event: h11.Event) -> None:
        self._outgoing += self._http.send(event) or b""

    def _send_out(self) -> None:
        if self._outgoing and not self._transport.is_closing():
            self._transport.write(bytes(self._outgoing))
        self._outgoing.clear()

    def _give_up(self, error: h11.RemoteProtocolError) -> None:
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"error": {"message": str(error)}}).encode()
            framing = (("content-type", "application/json"), ("content-length", str(len(body))))
            self.begin(error.error_status_hint, (*framing, ("connection", "close")))
            self.put(body)
            self.finish()
        self._transport.close()


Handler = Callable[[HttpRequest, Connection], Awaitable[None]]


def _incoming(head: h11.Request, body: bytes) -> HttpRequest:
    headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers)
    return HttpRequest(head.method.decode(), head.target.decode("latin-1"), headers, body)
