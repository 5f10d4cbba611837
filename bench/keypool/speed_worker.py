"""A worker that does nothing but ask for keys, and prints how long each took to come."""

import asyncio
import json
import random
import socket
import time

from agentos.core.protocol.commands import GrantLease
from agentos.core.protocol.events import LeaseReleased, LeaseRequested, WorkerReported
from agentos.core.protocol.results import Ending, Outcome, Usage, Verdict
from agentos.engines.channel import SocketChannel

# What a worker does between two calls: it saves its state.
SAVES = 0.005


def main(connection: socket.socket) -> None:
    asyncio.run(_live(connection))


async def _live(connection: socket.socket) -> None:
    channel = await SocketChannel.open(connection)
    order = json.loads(await channel.first_line())
    waits = [await _ask(channel, order["item"], call, order["thinks"]) for call in range(order["asks"])]
    print(*(f"{1000 * wait:.4f}" for wait in waits), flush=True)
    channel.send(WorkerReported(order["item"], Outcome(Ending.FINISHED, Verdict.APPROVED)))
    await channel.drain()


async def _ask(channel: SocketChannel, item: str, call: int, between: tuple[float, float]) -> float:
    thinks = random.uniform(*between)
    began = time.perf_counter()
    channel.send(LeaseRequested(item, str(call), ("gemini",), ("offline-rules-1",), 500, 1500))
    command = await channel.next()
    seconds = time.perf_counter() - began
    assert isinstance(command, GrantLease)
    await asyncio.sleep(thinks)
    channel.send(LeaseReleased(item, command.lease, thinks, Usage(1, 500, 1500)))
    await asyncio.sleep(SAVES)
    return seconds
