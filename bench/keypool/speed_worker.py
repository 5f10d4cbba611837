"""A worker that only requests leases, and prints how long each took."""

import asyncio
import json
import random
import socket
import time

from agentos.core.protocol.commands import GrantLease
from agentos.core.protocol.events import LeaseReleased, LeaseRequested, WorkerReported
from agentos.core.protocol.results import Ending, Outcome, Usage, Verdict
from agentos.engines.channel import SocketChannel

CHECKPOINT_SECONDS = 0.005  # what a worker spends between two calls to save its state


def main(connection: socket.socket) -> None:
    asyncio.run(_run_task(connection))


async def _run_task(connection: socket.socket) -> None:
    channel = await SocketChannel.open(connection)
    task = json.loads(await channel.first_line())
    waits = [
        await _timed_call(channel, task["item"], call, task["call_seconds"])
        for call in range(task["requests"])
    ]
    print(*(f"{1000 * wait:.4f}" for wait in waits), flush=True)
    channel.send(WorkerReported(task["item"], Outcome(Ending.FINISHED, Verdict.APPROVED)))
    await channel.drain()


async def _timed_call(channel: SocketChannel, item: str, call: int, between: tuple[float, float]) -> float:
    call_seconds = random.uniform(*between)
    began = time.perf_counter()
    channel.send(LeaseRequested(item, str(call), ("gemini",), ("offline-rules-1",), 500, 1500))
    command = await channel.next()
    seconds = time.perf_counter() - began
    assert isinstance(command, GrantLease)
    await asyncio.sleep(call_seconds)
    channel.send(LeaseReleased(item, command.lease, call_seconds, Usage(1, 500, 1500)))
    await asyncio.sleep(CHECKPOINT_SECONDS)
    return seconds
