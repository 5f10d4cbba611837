"""The other end: asks a run for something, and waits for what it says."""

import socket
import struct
from pathlib import Path

from agentos.control.address import address
from agentos.core.errors import UsageError
from agentos.core.protocol import events
from agentos.core.protocol.codec import CodecError, dumps, loads

REPLY_TIMEOUT = 5.0
CHUNK = 65536


class NotListening(Exception):
    """The run has ended, was killed, or never opened its socket."""


def ask(folder: Path, request: events.Request, patience: float = REPLY_TIMEOUT) -> list[events.News]:
    """What the run did; raises NotListening, or UsageError when it stands still."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(patience)
        try:
            with address(folder) as path:
                connection.connect(path)
            connection.sendall(dumps(request).encode() + b"\n")
            return _news(_read_all(connection))
        except TimeoutError as error:
            raise UsageError(_why_silent(folder.name, connection, patience)) from error
        except (FileNotFoundError, ConnectionError) as error:
            raise NotListening(str(error)) from error


def _read_all(connection: socket.socket) -> bytes:
    content = b""
    while chunk := connection.recv(CHUNK):
        content += chunk
    return content


def _news(content: bytes) -> list[events.News]:
    found = []
    for line in content.splitlines():
        try:
            found.append(loads(line))
        except CodecError:
            # A run of a newer agentos says more than we know.
            continue
    return found


def _why_silent(run: str, connection: socket.socket, patience: float) -> str:
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", found)[0]
    try:
        stopped = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")
    except OSError:
        stopped = False
    if stopped:
        return f"run {run} stands still (Ctrl-Z): type fg in its terminal, or kill -CONT {pid}"
    return f"run {run} (process {pid}) did not answer within {patience:.0f} s; try again"
