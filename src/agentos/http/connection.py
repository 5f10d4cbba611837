"""Server side of one HTTP/1.1 connection, as an asyncio protocol on top of h11."""

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

import h11

Headers = tuple[tuple[str, str], ...]

MAX_BODY_BYTES = 32 * 1024 * 1024
# Reading pauses when a client has sent more than this before its current request is answered.
MAX_PIPELINED_BYTES = 65536
# A rejected request may send this much more; then its connection is dropped.
MAX_REJECTED_BYTES = 65536
REJECT_GRACE = 1.0  # seconds in which a client that still sends can read the error
HEAD_TIMEOUT = 30.0  # seconds from a request's first byte, or the connection, to the end of its headers
# Linger for 0 seconds: closing discards unsent data and sends a TCP reset.
SO_LINGER_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A complete request; header names are in lower case."""

    method: str
    target: str
    headers: Headers
    body: bytes = field(repr=False)


class Connection(asyncio.Protocol):
    """Passes requests to `handler`, one at a time; a client that disconnects cancels the current one.

    `admit` sees a request before its body is read. It returns False after it has responded with an error: the body
    is then discarded, not kept in memory.

    To respond, a handler calls `begin`, then `put` and `flush` for each part of the body, then `finish`. If it
    returns without `finish`, the connection is closed.
    """

    def __init__(
        self,
        handler: "Handler",
        connections: set["Connection"],
        max_body: int = MAX_BODY_BYTES,
        admit: "Admission | None" = None,
        head_timeout: float = HEAD_TIMEOUT,
    ) -> None:
        self._handler = handler
        self._admit = admit
        self._connections = connections
        self._max_body = max_body
        self._head_timeout = head_timeout
        self._http = h11.Connection(h11.SERVER)
        self._writable = asyncio.Event()
        self._writable.set()
        self._task: asyncio.Task[None] | None = None
        self._head: h11.Request | None = None
        self._body = bytearray()
        self._pipelined = 0
        self._outgoing = bytearray()
        self._is_rejected = False
        self._discarded = 0
        self._head_timer: asyncio.TimerHandle | None = None

    # Callbacks of asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(self)
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._writable.set()
        self._stop_head_timer()
        if self._task:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        if self._discarded > MAX_REJECTED_BYTES:
            return
        if self._http.their_state is h11.IDLE and self._head_timer is None:
            self._start_head_timer()
        self._http.receive_data(data)
        if self._http.their_state is h11.DONE:
            self._pipelined += len(data)
            if self._pipelined > MAX_PIPELINED_BYTES:
                self._transport.pause_reading()
        else:
            self._read_events()

    def drop(self) -> "asyncio.Task[None] | None":
        """Closes the connection at once; returns the cancelled task of the current request, if any."""
        self._transport.abort()
        if self._task:
            self._task.cancel()
        return self._task

    # The response

    def begin(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        self._write(h11.Response(status_code=status, headers=encoded))

    def put(self, chunk: bytes) -> None:
        """Adds to the body; the response to a HEAD request has none."""
        if chunk and not (self._head and self._head.method == b"HEAD"):
            self._write(h11.Data(data=chunk))

    async def flush(self) -> None:
        """Sends what was put, and waits while the client reads too slowly."""
        self._send_outgoing()
        await self._writable.wait()

    def finish(self) -> None:
        self._write(h11.EndOfMessage())
        self._send_outgoing()

    def reset(self) -> None:
        """Sends what was put, then breaks the connection with a TCP reset."""
        self._send_outgoing()
        wire: socket.socket | None = self._transport.get_extra_info("socket")
        if wire is not None:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, SO_LINGER_RESET)
        self._transport.abort()

    @property
    def pending(self) -> int:
        """Number of bytes that were put but not sent yet."""
        return len(self._outgoing)

    # Reading requests

    def _read_events(self) -> None:
        try:
            while self._handle_event(self._http.next_event()):
                pass
        except h11.RemoteProtocolError as error:
            self._reject(error)

    def _handle_event(self, event: object) -> bool:
        """Returns whether there may be another event."""
        match event:
            case h11.Request():
                self._stop_head_timer()
                self._head, self._body = event, bytearray()
                self._is_rejected = self._admit is not None and not self._admit(_request(event, b""), self)
                if self._http.they_are_waiting_for_100_continue and not self._is_rejected:
                    self._write(h11.InformationalResponse(status_code=100, headers=[]))
                    self._send_outgoing()
            case h11.Data() if self._is_rejected:
                return self._discard(len(event.data))
            case h11.Data():
                self._body += event.data
                if len(self._body) > self._max_body:
                    size = self._max_body // 1024 // 1024
                    raise h11.RemoteProtocolError(
                        f"the request body is larger than {size} MB", error_status_hint=413
                    )
            case h11.EndOfMessage() if self._is_rejected:
                self._next_request()
                return False
            case h11.EndOfMessage():
                self._task = asyncio.ensure_future(self._exchange())
            case h11.ConnectionClosed():
                self._transport.close()
                return False
            case _:
                return False
        return True

    async def _exchange(self) -> None:
        assert self._head is not None
        request, self._body = _request(self._head, bytes(self._body)), bytearray()
        try:
            await self._handler(request, self)
        finally:
            self._next_request()

    def _discard(self, size: int) -> bool:
        """Drops a part of a rejected body; returns whether to read on. A long body ends the connection."""
        self._discarded += size
        if self._discarded <= MAX_REJECTED_BYTES:
            return True
        asyncio.get_running_loop().call_later(REJECT_GRACE, self._transport.abort)
        return False

    def _start_head_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._head_timer = loop.call_later(self._head_timeout, self._transport.abort)

    def _stop_head_timer(self) -> None:
        if self._head_timer:
            self._head_timer.cancel()
            self._head_timer = None

    def _next_request(self) -> None:
        """Reads on, or closes the connection if the response is incomplete."""
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self._pipelined = self._discarded = 0
            self._transport.resume_reading()
            if self._http.trailing_data[0]:  # the start of the next request came with the last one
                self._start_head_timer()
            self._read_events()
        elif not self._transport.is_closing():
            self._transport.close()

    def _write(self, event: h11.Event) -> None:
        self._outgoing += self._http.send(event) or b""

    def _send_outgoing(self) -> None:
        if self._outgoing and not self._transport.is_closing():
            self._transport.write(bytes(self._outgoing))
        self._outgoing.clear()

    def _reject(self, error: h11.RemoteProtocolError) -> None:
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"error": {"message": str(error)}}).encode()
            framing = (("content-type", "application/json"), ("content-length", str(len(body))))
            self.begin(error.error_status_hint, (*framing, ("connection", "close")))
            self.put(body)
            self.finish()
        self._transport.close()


Handler = Callable[[HttpRequest, Connection], Awaitable[None]]
Admission = Callable[[HttpRequest, Connection], bool]


def _request(head: h11.Request, body: bytes) -> HttpRequest:
    headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers)
    return HttpRequest(head.method.decode(), head.target.decode("latin-1"), headers, body)
