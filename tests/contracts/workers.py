"""What a worker may do in an engine, whichever it is."""

import asyncio
import json
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
Say = Callable[[str], None]


class Line(Protocol):
    def send(self, event: WorkerEvent) -> None: ...

    async def next(self) -> Command | None: ...


async def behave(word: str, item: str, channel: Line, say: Say) -> Outcome:
    """The order is a word; the item is whoever was started."""
    match word:
        case "finish":
            say("one line\nand a secret line\n")
        case "call":
            await _call(item, channel)
        case "stop":
            say("waiting\n")
            while not isinstance(await channel.next(), StopWorker):
                pass
            return Outcome(Ending.INTERRUPTED)
        case "hang":
            say("hanging\n")
            await asyncio.sleep(60)
        case "crash":
            raise SystemExit("it crashes")
        case "lie":
            channel.send(NodeStarted("LLD-99", "N1_design", 1))
            channel.send(NodeStarted(item, "N1_design", 1))
    return APPROVED


async def _call(item: str, channel: Line) -> None:
    for call in ("draft-1", "review-1"):
        channel.send(LeaseRequested(item, call, ("gemini",)))
        grant = await channel.next()
        assert isinstance(grant, GrantLease) and grant.call == call
        channel.send(LeaseReleased(item, grant.lease, 0.1, Usage(1, 10, 10)))


# As a thread.


def work(words: dict[str, str]) -> AsyncWorkerFunction:
    async def carry(command: StartWorker, channel: InlineChannel) -> Outcome:
        return await behave(words[command.item], command.item, channel, channel.write_output)

    return carry


# As a process.


def main(connection: socket.socket) -> None:
    asyncio.run(_live(connection))


async def _live(connection: socket.socket) -> None:
    channel = await SocketChannel.open(connection)
    item, word = json.loads(await channel.first_line())
    outcome = await behave(word, item, channel, lambda text: print(text, end="", flush=True))
    channel.send(WorkerReported(item, outcome))
    await channel.drain()
