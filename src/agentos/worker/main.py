"""A worker process: hears its order, has it carried, reports."""

import asyncio
import json
import os
import signal
import socket
import sys

from agentos.core.planning.worker_task import WorkerTask
from agentos.core.protocol.codec import unpack
from agentos.core.protocol.events import WorkerReported
from agentos.engines.channel import SocketChannel
from agentos.worker.item_runner import run_item


def main(connection: socket.socket) -> None:
    """The entry of a worker process; its channel is all it has."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    asyncio.run(_live(connection))


async def _live(connection: socket.socket) -> None:
    channel = await SocketChannel.open(connection)
    line = await channel.first_line()
    if not line:
        return
    order: WorkerTask = unpack(WorkerTask, json.loads(line))
    os.environ["AGENTOS_WORKFLOW_DB"] = order.database
    outcome = await run_item(order, channel, _say)
    sys.stdout.flush()
    channel.send(WorkerReported(order.item.id, outcome))
    await channel.drain()


def _say(text: str) -> None:
    print(text, flush=True)
