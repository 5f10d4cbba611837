"""Runs the server as a process of its own until it is told to stop."""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agentos.offline.config import ServerConfig
from agentos.offline.keys import OfflineKey
from agentos.offline.server import serve


@dataclass(frozen=True, slots=True)
class ListenAddress:
    host: str
    port: int
    die_with_parent: bool


def run(
    config: ServerConfig,
    keys: Iterable[OfflineKey],
    ready: Callable[[str], None],
    place: ListenAddress,
) -> None:
    """SIGTERM, SIGINT or, if asked for, the end of stdin end it."""
    asyncio.run(_until_told(config, keys, ready, place))


async def _until_told(
    config: ServerConfig,
    keys: Iterable[OfflineKey],
    ready: Callable[[str], None],
    place: ListenAddress,
) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(serve(config, keys, ready, host=place.host, port=place.port))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    if place.die_with_parent:
        watch_stdin(lambda: loop.call_soon_threadsafe(task.cancel))
    with contextlib.suppress(asyncio.CancelledError):
        await task


def watch_stdin(ended: Callable[[], object]) -> None:
    """A thread, since an event loop cannot wait for every kind of stdin; it dies with the process."""

    def read_to_the_end() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        with contextlib.suppress(RuntimeError):
            ended()

    threading.Thread(target=read_to_the_end, daemon=True).start()
