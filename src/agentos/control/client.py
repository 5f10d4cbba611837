"""Client of the control socket: sends a request to a run and waits for its reply."""

import contextlib
import socket
import struct
from pathlib import Path

from agentos.control.server import socket_path
from agentos.core.errors import UsageError
from agentos.core.protocol import events
from agentos.core.protocol.codec import CodecError, dumps, loads

REPLY_TIMEOUT = 5.0  # seconds
CHUNK = 65536  # bytes


class NotListening(Exception):
    """The run has ended, was killed, or never opened its socket."""


def ask(folder: Path, request: events.Request, timeout: float = REPLY_TIMEOUT) -> list[events.News]:
    """The events that the request caused. Raises NotListening, or UsageError if the run does not reply in time."""
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


def _parse_reply(content: bytes) -> list[events.News]:
    news = []
    for line in content.splitlines():
        # A run of a newer version may send events that this one does not know.
        with contextlib.suppress(CodecError):
            news.append(loads(line))
    return news


def _timeout_text(run: str, connection: socket.socket, timeout: float) -> str:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", credentials)[0]
    try:
        is_suspended = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")
    except OSError:
        is_suspended = False
    if is_suspended:
        return f"run {run} is suspended (Ctrl-Z): type fg in its terminal, or kill -CONT {pid}"
    return f"run {run} (process {pid}) did not answer within {timeout:.0f} s; try again"
