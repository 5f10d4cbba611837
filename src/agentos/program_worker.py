"""Inside a worker process: one program, for one item."""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

from agentos.core.commands import StopWorker
from agentos.core.events import ProgramEnded, WorkerReported
from agentos.core.ports import Channel
from agentos.core.programs import Errand, record_name
from agentos.core.results import Ending, Outcome, failed, stumbled
from agentos.core.wire import unpack
from agentos.engines.channel import SocketChannel
from agentos.engines.kernel import be_told_of_parent
from agentos.settings import environment
from agentos.storage.locks import Holder, ItemLocks
from agentos.storage.marks import Marks

GRACE = 2.0
PARENT_GONE = signal.SIGUSR1


def main(connection: socket.socket) -> None:
    """The entry of a worker process; the program is in its group, and dies with it."""
    # Caught, not ignored: what is ignored would stay so in the program.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    signal.signal(PARENT_GONE, lambda *_: _end_group())
    be_told_of_parent(os.getppid(), PARENT_GONE)
    asyncio.run(_live(connection))


async def _live(connection: socket.socket) -> None:
    channel = await SocketChannel.open(connection)
    line = await channel.first_line()
    if not line:
        return
    errand: Errand = unpack(Errand, json.loads(line))
    outcome = await carry(errand, channel)
    channel.tell(WorkerReported(errand.item.id, outcome))
    await channel.drain()


async def carry(errand: Errand, channel: Channel) -> Outcome:
    """Takes the item's lock, looks whether it is done, and runs the program."""
    records = Path(errand.records)
    locks, marks = ItemLocks.inside(records), Marks(records)
    name = record_name(errand.item.source)
    lock = locks.acquire(name, Holder(errand.coordinator, errand.run))
    if lock is None:
        return Outcome(Ending.ELSEWHERE, error="another run works on it")
    try:
        if errand.redo:
            marks.clear(errand.item)
        elif marks.is_done(errand.item):
            return Outcome(Ending.FINISHED, error="was finished already")
        return await _run(errand, channel, marks)
    finally:
        lock.release()


async def _run(errand: Errand, channel: Channel, marks: Marks) -> Outcome:
    began = time.monotonic()
    try:
        process = await asyncio.create_subprocess_exec(
            *errand.words,
            stdin=asyncio.subprocess.DEVNULL,
            cwd=errand.place,
            env={**environment(), **{one.name: one.value.reveal() for one in errand.variables}},
        )
    except (OSError, ValueError) as error:
        return failed(f"{errand.words[0]} cannot be started: {getattr(error, 'strerror', None) or error}")
    stopping = asyncio.Event()
    listening = asyncio.create_task(_listen(channel, stopping))
    ending = asyncio.create_task(_stop(stopping))
    try:
        status = await process.wait()
    finally:
        listening.cancel()
        ending.cancel()
    seconds = time.monotonic() - began
    if status == 0:
        marks.set(errand.item, seconds)
    channel.tell(ProgramEnded(errand.item.id, status, seconds))
    return _outcome(errand, status, stopped=stopping.is_set())


def _outcome(errand: Errand, status: int, *, stopped: bool) -> Outcome:
    if status == 0:
        return Outcome(Ending.FINISHED)
    if stopped:
        return Outcome(Ending.INTERRUPTED)
    if status < 0:
        return stumbled(f"killed by {signal.Signals(-status).name}")
    may_pass = errand.any_passes or status in errand.passing
    return (stumbled if may_pass else failed)(f"exit status {status}")


async def _listen(channel: Channel, stopping: asyncio.Event) -> None:
    while (command := await channel.next()) is not None:
        if isinstance(command, StopWorker):
            stopping.set()
    _end_group()


async def _stop(stopping: asyncio.Event) -> None:
    """Asks the program, and whatever it has started, to end; then ends it."""
    await stopping.wait()
    os.killpg(0, signal.SIGTERM)
    await asyncio.sleep(GRACE)
    sys.stdout.flush()
    os.killpg(0, signal.SIGKILL)


def _end_group() -> None:
    """Nothing outlives the coordinator: this process ends with the others of its group."""
    os.killpg(0, signal.SIGKILL)
