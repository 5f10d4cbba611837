"""Inside a worker process: one program, for one item."""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

from agentos.config.settings import environment
from agentos.core.planning.exec_command import ExecTask, record_name
from agentos.core.protocol.codec import unpack
from agentos.core.protocol.commands import StopWorker
from agentos.core.protocol.events import ProgramEnded, WorkerReported
from agentos.core.protocol.ports import Channel
from agentos.core.protocol.results import Ending, Outcome, failed, failed_transient
from agentos.engines.channel import SocketChannel
from agentos.engines.prctl import signal_on_parent_death
from agentos.storage.exec_done import DoneMarkers
from agentos.storage.locks import Holder, ItemLocks

STOP_GRACE = 2.0
PARENT_GONE = signal.SIGUSR1


def main(connection: socket.socket) -> None:
    """The entry of a worker process; the program is in its group, and dies with it."""
    # Caught, not ignored: what is ignored would stay so in the program.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    signal.signal(PARENT_GONE, lambda *_: _end_group())
    signal_on_parent_death(os.getppid(), PARENT_GONE)
    asyncio.run(_live(connection))


async def _live(connection: socket.socket) -> None:
    channel = await SocketChannel.open(connection)
    line = await channel.first_line()
    if not line:
        return
    task: ExecTask = unpack(ExecTask, json.loads(line))
    outcome = await run_program(task, channel)
    channel.send(WorkerReported(task.item.id, outcome))
    await channel.drain()


async def run_program(task: ExecTask, channel: Channel) -> Outcome:
    """Takes the item's lock, looks whether it is done, and runs the program."""
    records = Path(task.records)
    locks, markers = ItemLocks.inside(records), DoneMarkers(records)
    name = record_name(task.item.source)
    lock = locks.acquire(name, Holder(task.coordinator, task.run))
    if lock is None:
        return Outcome(Ending.ELSEWHERE, error="another run works on it")
    try:
        if task.redo:
            markers.clear(task.item)
        elif markers.is_done(task.item):
            return Outcome(Ending.FINISHED, error="was finished already")
        return await _run(task, channel, markers)
    finally:
        lock.release()


async def _run(task: ExecTask, channel: Channel, markers: DoneMarkers) -> Outcome:
    began = time.monotonic()
    try:
        process = await asyncio.create_subprocess_exec(
            *task.command,
            stdin=asyncio.subprocess.DEVNULL,
            cwd=task.place,
            env={**environment(), **{one.name: one.value.reveal() for one in task.variables}},
        )
    except (OSError, ValueError) as error:
        return failed(f"{task.command[0]} cannot be started: {getattr(error, 'strerror', None) or error}")
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
        markers.set(task.item, seconds)
    channel.send(ProgramEnded(task.item.id, status, seconds))
    return _outcome(task, status, stopped=stopping.is_set())


def _outcome(task: ExecTask, status: int, *, stopped: bool) -> Outcome:
    if status == 0:
        return Outcome(Ending.FINISHED)
    if stopped:
        return Outcome(Ending.INTERRUPTED)
    if status < 0:
        return failed_transient(f"killed by {signal.Signals(-status).name}")
    retryable = task.retry_any or status in task.retry_codes
    return (failed_transient if retryable else failed)(f"exit status {status}")


async def _listen(channel: Channel, stopping: asyncio.Event) -> None:
    while (command := await channel.next()) is not None:
        if isinstance(command, StopWorker):
            stopping.set()
    _end_group()


async def _stop(stopping: asyncio.Event) -> None:
    """Asks the program, and whatever it has started, to end; then ends it."""
    await stopping.wait()
    os.killpg(0, signal.SIGTERM)
    await asyncio.sleep(STOP_GRACE)
    sys.stdout.flush()
    os.killpg(0, signal.SIGKILL)


def _end_group() -> None:
    """Nothing outlives the coordinator: this process ends with the others of its group."""
    os.killpg(0, signal.SIGKILL)
