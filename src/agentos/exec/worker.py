"""Inside a worker process of `agentos exec`: runs one program for one item."""

import asyncio
import functools
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
from agentos.engines.prctl import die_with_parent, signal_on_parent_death
from agentos.storage.exec_done import DoneMarkers
from agentos.storage.locks import Holder, ItemLocks

STOP_GRACE = 2.0  # seconds between SIGTERM and SIGKILL
PARENT_DEATH_SIGNAL = signal.SIGUSR1


def main(connection: socket.socket) -> None:
    """Run one item: the program joins this worker's process group and is killed with it."""
    # Handled, not ignored: the program would inherit an ignored signal.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    signal.signal(PARENT_DEATH_SIGNAL, lambda *_: _kill_group())
    signal_on_parent_death(os.getppid(), PARENT_DEATH_SIGNAL)
    asyncio.run(_run_task(connection))


async def _run_task(connection: socket.socket) -> None:
    channel = await SocketChannel.open(connection)
    line = await channel.first_line()
    if not line:
        return
    task: ExecTask = unpack(ExecTask, json.loads(line))
    outcome = await run_program(task, channel)
    channel.send(WorkerReported(task.item.id, outcome))
    await channel.drain()


async def run_program(task: ExecTask, channel: Channel) -> Outcome:
    """Lock the item and run its program unless it is done already."""
    records = Path(task.records_dir)
    locks, markers = ItemLocks.inside(records), DoneMarkers(records)
    name = record_name(task.item.source)
    previous = locks.holder(name)
    lock = locks.acquire(name, Holder(task.coordinator, task.run))
    if lock is None:
        return Outcome(Ending.ELSEWHERE, error="another run is working on it")
    try:
        if task.redo:
            markers.clear(task.item)
        elif markers.is_done(task.item):
            if previous and previous.run == task.run:
                return Outcome(Ending.FINISHED, error="was finished already")
            return Outcome(Ending.FINISHED_ELSEWHERE, error="another run finished it")
        assert lock.descriptor is not None
        return await _run(task, channel, markers, lock.descriptor)
    finally:
        lock.release()


async def _run(task: ExecTask, channel: Channel, markers: DoneMarkers, lock: int) -> Outcome:
    """Run the program. It inherits the item's lock: should it outlive this worker, no other run starts the item."""
    started_at = time.monotonic()
    try:
        process = await asyncio.create_subprocess_exec(
            *task.command,
            stdin=asyncio.subprocess.DEVNULL,
            cwd=task.working_dir,
            pass_fds=(lock,),
            preexec_fn=functools.partial(die_with_parent, os.getpid()),
            env={**environment(), **{variable.name: variable.value.reveal() for variable in task.variables}},
        )
    except (OSError, ValueError) as error:
        return failed(f"cannot start {task.command[0]}: {getattr(error, 'strerror', None) or error}")
    stopping = asyncio.Event()
    listener = asyncio.create_task(_listen(channel, stopping))
    stopper = asyncio.create_task(_stop_group(stopping))
    try:
        status = await process.wait()
    finally:
        listener.cancel()
        stopper.cancel()
    seconds = time.monotonic() - started_at
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
        return failed_transient(f"killed by {_signal_name(-status)}")
    retryable = task.retry_any or status in task.retry_codes
    return (failed_transient if retryable else failed)(f"exit status {status}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


async def _listen(channel: Channel, stopping: asyncio.Event) -> None:
    while (command := await channel.next()) is not None:
        if isinstance(command, StopWorker):
            stopping.set()
    _kill_group()


async def _stop_group(stopping: asyncio.Event) -> None:
    """When asked to stop, terminate the program and everything it started; after a grace period, kill them."""
    await stopping.wait()
    os.killpg(0, signal.SIGTERM)
    await asyncio.sleep(STOP_GRACE)
    sys.stdout.flush()
    os.killpg(0, signal.SIGKILL)


def _kill_group() -> None:
    """Kill the whole process group, this process included: nothing may outlive the coordinator."""
    os.killpg(0, signal.SIGKILL)
