"""A worker's channel to its coordinator over a socket: one JSON message per line."""

import asyncio
import socket

from agentos.core.protocol.codec import dumps, loads
from agentos.core.protocol.commands import Command
from agentos.core.protocol.events import WorkerEvent

MAX_LINE = 16 * 1024 * 1024  # bytes


class SocketChannel:
    """The worker's end of the channel; use `open` to create one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, connection: socket.socket) -> "SocketChannel":
        return cls(*await asyncio.open_unix_connection(sock=connection, limit=MAX_LINE))

    async def first_line(self) -> bytes:
        """The worker's task; empty if the coordinator is gone."""
        return await self._reader.readline()

    def send(self, event: WorkerEvent) -> None:
        # A name that is not UTF-8 holds lone surrogates; as backslash escapes they are valid JSON.
        self._writer.write(dumps(event).encode(errors="backslashreplace") + b"\n")

    async def next(self) -> Command | None:
        line = await self._reader.readline()
        if not line.endswith(b"\n"):
            return None
        command: Command = loads(line)
        return command

    async def drain(self) -> None:
        """Flush everything sent to the kernel and close the channel."""
        await self._writer.drain()
        self._writer.close()
        await self._writer.wait_closed()
