"""The control socket of a run: other terminals send requests to it. It never blocks the event loop."""

import contextlib
import os
import selectors
import socket
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentos.core.protocol import events
from agentos.core.protocol.codec import CodecError, dumps, loads
from agentos.platform_support import platform

SOCKET_NAME = "control.sock"
MAX_REQUEST = 4096  # bytes
MAX_CONNECTIONS = 16
LINK_LENGTH = 40  # bytes added by a temporary folder, the link in it and the socket's name
MAX_PATH = 103  # bytes; the maximum on macOS (Linux: 107)


@contextlib.contextmanager
def socket_path(folder: Path) -> Iterator[str]:
    """A path to the socket that is short enough for bind and connect, however deep the folder is."""
    path = str(folder / SOCKET_NAME)
    if len(os.fsencode(path)) <= MAX_PATH:
        yield path
        return
    # TMPDIR may be as deep as the folder itself.
    parent = tempfile.gettempdir()
    is_deep = len(os.fsencode(parent)) + LINK_LENGTH > MAX_PATH
    with tempfile.TemporaryDirectory(prefix="agentos-", dir="/tmp" if is_deep else parent) as short:  # noqa: S108
        link = Path(short, "run")
        link.symlink_to(folder.absolute())
        yield str(link / SOCKET_NAME)


@dataclass(slots=True)
class _ControlConnection:
    socket: socket.socket
    unread: bytes = b""


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request whose sender waits for the reply."""

    request: events.Request
    connection: socket.socket

    def reply(self, answer: Sequence[events.SchedulerEvent]) -> None:
        """Send the events that the request caused, one per line, and close the connection."""
        _reply_and_close(self.connection, answer)


class ControlSocket:
    """Accepts requests from the run's owner and from root only.

    The folder is 0700 and the socket 0600; in addition, the kernel says which user is at the other end. Wait on
    `fileno`, then call `receive`.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / SOCKET_NAME
        self._connections: dict[int, _ControlConnection] = {}
        self._selector = selectors.DefaultSelector()
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.settimeout(0.0)
        try:
            with socket_path(folder) as path:
                self._listening.bind(path)
            # Nobody could connect before `listen`, and nobody else may enter the folder.
            self._path.chmod(0o600)
            self._listening.listen(MAX_CONNECTIONS)
        except OSError:
            self._listening.close()
            self._selector.close()
            raise
        self._selector.register(self._listening, selectors.EVENT_READ)
        # The descriptor of epoll or kqueue can itself be waited on.
        self._descriptor = self._selector.fileno()

    def fileno(self) -> int:
        """Readable when there is a connection or data."""
        return self._descriptor

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
        self._connections[connection.fileno()] = _ControlConnection(connection)
        self._selector.register(connection, selectors.EVENT_READ)

    def _read(self, connection: _ControlConnection) -> PendingRequest | None:
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
        # If the sender gave up while this process was suspended, its request no longer counts.
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

    def _forget(self, connection: _ControlConnection) -> socket.socket:
        """Stop reading from the connection; a reply can still be sent."""
        self._selector.unregister(connection.socket)
        del self._connections[connection.socket.fileno()]
        return connection.socket


def _reply_and_close(connection: socket.socket, answer: Sequence[events.SchedulerEvent]) -> None:
    """Best effort: a sender that is gone or does not read misses the reply."""
    content = "".join(f"{dumps(event)}\n" for event in answer).encode()
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
    return platform().peer(connection).user in (os.geteuid(), 0, None)
