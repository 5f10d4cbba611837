"""Client of the control socket: sends a request to a run and waits for its reply."""

import contextlib
import socket
from pathlib import Path

from agentos.control.server import socket_path
from agentos.core.errors import UsageError
from agentos.core.protocol import events
from agentos.core.protocol.codec import CodecError, dumps, loads
from agentos.platform_support import platform

REPLY_TIMEOUT = 5.0  # seconds
CHUNK = 65536  # bytes


class NotListening(Exception):
    """The run has ended, was killed, or never opened its socket."""


def ask(folder: Path, request: events.Request, timeout: float = REPLY_TIMEOUT) -> list[events.SchedulerEvent]:
    """Send the request and return the events that it caused. Raises NotListening, or UsageError without a timely reply."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout)
        try:
            with socket_path(folder) as path:
                connection.connect(path)
            connection.sendall(dumps(request).encode() + b"\n")
            content = b""
            while chunk := connection.recv(CHUNK):
                content += chunk
            return _parse_reply(content)
        except TimeoutError as error:
            raise UsageError(_timeout_text(folder.name, connection, timeout)) from error
        except (FileNotFoundError, ConnectionError) as error:
            raise NotListening(str(error)) from error


def _parse_reply(content: bytes) -> list[events.SchedulerEvent]:
    reply = []
    for line in content.splitlines():
        # A run of a newer version may send events that this one does not know.
        with contextlib.suppress(CodecError):
            reply.append(loads(line))
    return reply


def _timeout_text(run: str, connection: socket.socket, timeout: float) -> str:
    pid = platform().peer(connection).pid
    if pid is None:
        return f"run {run} did not answer within {timeout:.0f} s: if it is suspended (Ctrl-Z), type fg in its terminal; else try again"
    if platform().is_stopped(pid):
        return f"run {run} is suspended (Ctrl-Z): type fg in its terminal, or kill -CONT {pid}"
    return f"run {run} (process {pid}) did not answer within {timeout:.0f} s; try again"
