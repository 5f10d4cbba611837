"""Scripted workers for the engine contract, as a thread and as a process."""

import asyncio
import json
import os
import socket
from collections.abc import Callable
from typing import Protocol

from agentos.core.protocol.commands import Command, GrantLease, StartWorker, StopWorker
from agentos.core.protocol.events import (
    LeaseReleased,
    LeaseRequested,
    NodeStarted,
    WorkerEvent,
    WorkerReported,
)
from agentos.core.protocol.results import Ending, Outcome, Usage, Verdict
from agentos.engines.channel import SocketChannel
from agentos.engines.inline import AsyncWorkerFunction, InlineChannel

APPROVED = Outcome(Ending.FINISHED, Verdict.APPROVED, 1)
Write = Callable[[str], None]


class WorkerChannel(Protocol):
    def send(self, event: WorkerEvent) -> None: ...

    async def next(self) -> Command | None: ...


async def run_script(script: str, item: str, channel: WorkerChannel, write: Write) -> Outcome:
    """Do what the script says."""
    match script.strip():
        case "finish":
            write("one line\nand a secret line\n")
        case "call":
            await _call(item, channel)
        case "stop":
            write("waiting\n")
            while not isinstance(await channel.next(), StopWorker):
                pass
            return Outcome(Ending.INTERRUPTED)
        case "hang":
            write("hanging\n")
            await asyncio.sleep(60)
        case "show the parent":
            write(f"{os.getppid()}\n")
            await asyncio.sleep(60)
        case "crash":
            raise SystemExit("it crashes")
        case "lie":
            channel.send(NodeStarted("LLD-99", "N1_design", 1))
            channel.send(NodeStarted(item, "N1_design", 1))
    return APPROVED


async def _call(item: str, channel: WorkerChannel) -> None:
    for call in ("draft-1", "review-1"):
        channel.send(LeaseRequested(item, call, ("gemini",)))
        grant = await channel.next()
        assert isinstance(grant, GrantLease) and grant.call == call
        channel.send(LeaseReleased(item, grant.lease, 0.1, Usage(1, 10, 10)))


def async_worker(scripts: dict[str, str]) -> AsyncWorkerFunction:
    async def run(command: StartWorker, channel: InlineChannel) -> Outcome:
        return await run_script(scripts[command.item], command.item, channel, channel.write_output)

    return run


def main(connection: socket.socket) -> None:
    asyncio.run(_run_task(connection))


async def _run_task(connection: socket.socket) -> None:
    channel = await SocketChannel.open(connection)
    item, script = json.loads(await channel.first_line())
    outcome = await run_script(script, item, channel, lambda text: print(text, end="", flush=True))
    channel.send(WorkerReported(item, outcome))
    await channel.drain()
