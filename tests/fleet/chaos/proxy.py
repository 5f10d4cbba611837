"""A TCP proxy on loopback that can stop passing bytes without closing anything, as a network partition does."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, Self

CHUNK = 65536  # bytes
CALL_TIMEOUT = 10.0  # seconds


class PartitionProxy:
    """One listening port per target. While it is cut, connections stay open and new ones are accepted, but nothing gets
    through in either direction; afterwards everything arrives, late, as after a partition.

    `withheld` counts the bytes that a cut has delayed, so that a campaign can prove that its partitions hit something.
    """

    def __init__(self, targets: Sequence[int]) -> None:
        self.ports: list[int] = []
        self.withheld = 0
        self._targets = targets
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(self, *error: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_TIMEOUT)
        self._loop.close()

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self._passing.clear)

    def heal(self) -> None:
        self._loop.call_soon_threadsafe(self._passing.set)

    def _call(self, task: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(task, self._loop).result(CALL_TIMEOUT)

    async def _listen(self) -> None:
        self._passing = asyncio.Event()
        self._passing.set()
        self._servers = []
        for target in self._targets:

            async def serve(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int = target
            ) -> None:
                await self._serve(reader, writer, target)

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            self._servers.append(server)
            self.ports.append(server.sockets[0].getsockname()[1])

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._connect(reader, writer, target)
        self._tasks.discard(task)
        writer.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int) -> None:
        await self._passing.wait()
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
        pumps = [
            asyncio.ensure_future(self._pump(reader, far_writer)),
            asyncio.ensure_future(self._pump(far_reader, writer)),
        ]
        try:
            # One end that is closed closes the other, but what is on its way arrives first.
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            far_writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            chunk = await reader.read(CHUNK)
            if not self._passing.is_set():
                self.withheld += len(chunk)
                await self._passing.wait()
            if not chunk:
                return
            writer.write(chunk)
            await writer.drain()
