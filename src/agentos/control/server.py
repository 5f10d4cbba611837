"""The run's end of its control socket: one descriptor to wait on, never a wait of its own."""

import contextlib
import os
import selectors
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentos.control.address import MAX_PATH, NAME, address
from agentos.core.protocol import events
from agentos.core.protocol.codec import CodecError, dumps, loads

MOST_CALLERS = 16


@dataclass(slots=True)
class _Connection:
    connection: socket.socket
    unread: bytes = b""


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request, and the way back to whoever asks."""

    request: events.Request
    connection: socket.socket

    def reply(self, news: Sequence[events.News]) -> None:
        """Tells what came of it, one line each."""
        _reply_and_close(self.connection, news)


class ControlSocket:
    """Opened by its owner alone: the folder is 0700, the socket 0600, and the kernel names the caller."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._connections: dict[int, _Connection] = {}
        self._selector = selectors.EpollSelector()
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            # Before it has a name: so it never has one that others may open.
            os.fchmod(self._listening.fileno(), 0o600)
            with address(folder) as path:
                self._listening.bind(path)
            self._listening.listen(MOST_CALLERS)
        except OSError:
            self._listening.close()
            self._selector.close()
            raise
        self._selector.register(self._listening, selectors.EVENT_READ)

    def fileno(self) -> int:
        """Can be read when somebody has called or spoken."""
        return self._selector.fileno()

    def receive(self) -> list[PendingRequest]:
        """The requests that have come; never waits."""
        asked = []
        for key, _ in self._selector.select(0):
            if key.fileobj is self._listening:
                self._accept()
            elif found := self._read(self._connections[key.fd]):
                asked.append(found)
        return asked

    def close(self) -> None:
        for caller in list(self._connections.values()):
            self._disconnect(caller).close()
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
        if len(self._connections) >= MOST_CALLERS:
            self._disconnect(next(iter(self._connections.values()))).close()
        self._connections[connection.fileno()] = _Connection(connection)
        self._selector.register(connection, selectors.EVENT_READ)

    def _read(self, caller: _Connection) -> PendingRequest | None:
        try:
            chunk = caller.connection.recv(MAX_PATH)
        except BlockingIOError:
            return None
        except OSError:
            chunk = b""
        caller.unread += chunk
        line, newline, _ = caller.unread.partition(b"\n")
        if newline:
            return self._parse(self._disconnect(caller), line)
        if not chunk or len(caller.unread) > MAX_PATH:
            self._disconnect(caller).close()
        return None

    def _parse(self, connection: socket.socket, line: bytes) -> PendingRequest | None:
        # While we stood still it may have given up: then nobody wants this any more.
        if not _waits(connection):
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

    def _disconnect(self, caller: _Connection) -> socket.socket:
        """No longer listened to; what is sent to it stays possible."""
        self._selector.unregister(caller.connection)
        del self._connections[caller.connection.fileno()]
        return caller.connection


def _reply_and_close(connection: socket.socket, news: Sequence[events.News]) -> None:
    """A caller that is gone, or does not read, misses it."""
    content = "".join(f"{dumps(event)}\n" for event in news).encode()
    with contextlib.suppress(OSError):
        connection.sendall(content)
    connection.close()


def _waits(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def _is_owner(connection: socket.socket) -> bool:
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    user: int = struct.unpack("3i", found)[1]
    return user in (os.geteuid(), 0)
