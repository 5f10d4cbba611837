"""Listens on a loopback address or, with TLS, on any; recognises requests to a loopback name; ends with its parent
process."""

import asyncio
import contextlib
import ipaddress
import os
import socket
import ssl
import threading
from asyncio.trsock import TransportSocket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from agentos.http.connection import HEAD_TIMEOUT, MAX_BODY_BYTES, Admission, Connection, Handler

CLOSE_GRACE = 0.2  # seconds
# A peer that was cut off is noticed within half a minute; the system's defaults take hours. Not every system has all of
# these.
DEAD_PEER_OPTIONS = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server listens.

    Port 0 picks a free one; `tls` encrypts its connections. `in_clear` serves other machines without TLS, for content
    that is not secret.
    """

    host: str = "127.0.0.1"
    port: int = 0
    tls: ssl.SSLContext | None = None
    in_clear: bool = False


LOOPBACK = Endpoint()


@asynccontextmanager
async def listening(
    handler: Handler,
    endpoint: Endpoint = LOOPBACK,
    *,
    max_body: int = MAX_BODY_BYTES,
    admit: Admission | None = None,
    head_timeout: float = HEAD_TIMEOUT,
) -> AsyncIterator[str]:
    """Serve while the context is open, and yield the server's URL; leaving it drops every connection.

    Raises ValueError for an address that other machines can reach, unless the connections are encrypted.
    """
    connections: set[Connection] = set()
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(handler, connections, max_body, admit, head_timeout),
        endpoint.host if endpoint.tls or endpoint.in_clear else loopback_address(endpoint.host),
        endpoint.port,
        backlog=1024,
        ssl=endpoint.tls,
    )
    for listener in server.sockets:
        # Accepted connections inherit these.
        notice_dead_peers(listener)
    address, port = server.sockets[0].getsockname()[:2]
    scheme = "https" if endpoint.tls else "http"
    try:
        yield f"{scheme}://[{address}]:{port}" if ":" in address else f"{scheme}://{address}:{port}"
    finally:
        server.close()
        tasks = [task for connection in tuple(connections) if (task := connection.drop())]
        if tasks:
            # Let the handlers record that their calls were dropped.
            await asyncio.wait(tasks, timeout=CLOSE_GRACE)


def notice_dead_peers(connection: "socket.socket | TransportSocket") -> None:
    """Let the system close connections whose other end was cut off without closing them."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in DEAD_PEER_OPTIONS.items():
        if (option := getattr(socket, name, None)) is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def has_loopback_host(headers: Iterable[tuple[str, str]]) -> bool:
    """Whether the Host header names this machine.

    Rejecting others stops DNS rebinding: a web page whose name resolves to 127.0.0.1 sends its own name.
    """
    host = next((value for name, value in headers if name == "host"), "")
    name = host.strip().rsplit(":", 1)[0].strip("[]")
    return name == "localhost" or is_loopback(name)


def loopback_address(host: str) -> str:
    address = "127.0.0.1" if host == "localhost" else host
    if not is_loopback(address):
        raise ValueError(f"invalid host {host}: must be a loopback address such as 127.0.0.1")
    return address


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def on_stdin_closed(callback: Callable[[], object]) -> None:
    """Call back, on another thread, when standard input is closed, so that a server can end with its parent.

    A daemon thread reads, because an event loop cannot wait for every kind of stdin.
    """

    def read_to_end() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        # RuntimeError: the event loop is closed already.
        with contextlib.suppress(RuntimeError):
            callback()

    threading.Thread(target=read_to_end, daemon=True).start()
