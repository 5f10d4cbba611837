"""The control socket of a run: other terminals send requests to it. It never blocks the event loop."""

import contextlib
import os
import selectors
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentos.core.protocol import events
from agentos.core.protocol.codec import CodecError, dumps, loads

SOCKET_NAME = "control.sock"
MAX_REQUEST = 4096  # bytes
MAX_CONNECTIONS = 16


@contextlib.contextmanager
def socket_path(folder: Path) -> Iterator[str]:
    """A path to the socket for bind and connect, which accept at most 107 bytes however deep the folder is."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)


@dataclass(slots=True)
class _Connection:
    socket: socket.socket
    unread: bytes = b""


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request whose sender waits for the reply."""

    request: events.Request
    connection: socket.socket

    def reply(self, news: Sequence[events.News]) -> None:
        """Send the events that the request caused, one per line, and close the connection."""
        _reply_and_close(self.connection, news)


class ControlSocket:
    """Accepts requests from the run's owner and from root only.

    The folder is 0700 and the socket 0600; in addition, the kernel tells who is at the other end. Wait on `fileno`,
    then call `receive`.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / SOCKET_NAME
        self._connections: dict[int, _Connection] = {}
        self._selector = selectors.EpollSelector()
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            # Before bind, so that there is no moment at which others could open it.
            os.fchmod(self._listening.fileno(), 0o600)
            with socket_path(folder) as path:
                self._listening.bind(path)
            self._listening.listen(MAX_CONNECTIONS)
        except OSError:
            self._listening.close()
            self._selector.close()
            raise
        self._selector.register(self._listening, selectors.EVENT_READ)

    def fileno(self) -> int:
        """Readable when there is a connection or data."""
        return self._selector.fileno()

    def receive(self) -> list[PendingRequest]:
        """The requests that have arrived; never blocks."""
        requests = []
        for key, _ in self._selector.select(0):
            if key.fileobj is self._listening:
                self._accept()
            elif request := self._read(self._connections[key.fd]):
                requests.append(request)
        return requests

    def close(self) -> None:
        for connection in list(self._connections.values()):
            self._forget(connection).close()
        self._selector.close()
        self._listening.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except OSError:
            return
        if not _is_owner(connection):
            connection.close()
            return
        connection.settimeout(0.0)
        if len(self._connections) >= MAX_CONNECTIONS:
            self._forget(next(iter(self._connections.values()))).close()
        self._connections[connection.fileno()] = _Connection(connection)
        self._selector.register(connection, selectors.EVENT_READ)

    def _read(self, connection: _Connection) -> PendingRequest | None:
        try:
            chunk = connection.socket.recv(MAX_REQUEST)
        except BlockingIOError:
            return None
        except OSError:
            chunk = b""
        connection.unread += chunk
        line, newline, _ = connection.unread.partition(b"\n")
        if newline:
            return self._parse(self._forget(connection), line)
        if not chunk or len(connection.unread) > MAX_REQUEST:
            self._forget(connection).close()
        return None

    def _parse(self, connection: socket.socket, line: bytes) -> PendingRequest | None:
        # The sender may have given up while this process was suspended: then its request is void.
        if not _is_open(connection):
            connection.close()
            return None
        try:
            request = loads(line)
        except CodecError as error:
            request, problem = None, str(error)
        else:
            problem = f"a {type(request).__name__} is not a request"
        if isinstance(request, events.Request):
            return PendingRequest(request, connection)
        _reply_and_close(connection, [events.RequestDeclined(problem, 2)])
        return None

    def _forget(self, connection: _Connection) -> socket.socket:
        """Stop reading from it; it can still be replied to."""
        self._selector.unregister(connection.socket)
        del self._connections[connection.socket.fileno()]
        return connection.socket


def _reply_and_close(connection: socket.socket, news: Sequence[events.News]) -> None:
    """Best effort: a sender that is gone or does not read misses it."""
    content = "".join(f"{dumps(event)}\n" for event in news).encode()
    with contextlib.suppress(OSError):
        connection.sendall(content)
    connection.close()


def _is_open(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def _is_owner(connection: socket.socket) -> bool:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    user: int = struct.unpack("3i", credentials)[1]
    return user in (os.geteuid(), 0)
