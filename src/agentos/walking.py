"""Walks the graph of one item, from its checkpoint as far as it goes."""

import asyncio
import contextlib
import functools
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentos.core.events import NodeFinished, NodeStarted, WorkerEvent
from agentos.core.gates import Asked, Parking
from agentos.core.orders import Order
from agentos.core.plan import FINISHED
from agentos.core.ports import Answer, Documents, Question
from agentos.core.results import Ending, Outcome, stumbled
from agentos.core.wire import pack, unpack
from agentos.storage.checkpoints import Checkpoint
from agentos.storage.gates import PARKING, decision_note
from agentos.workflows.announcing import announced
from agentos.workflows.desk import Desk, Say, Tracker
from agentos.workflows.gates import resumed
from agentos.workflows.plugin import Plugin

GRACE = 2.0
STEPS_A_ROUND = 8


@dataclass(frozen=True, slots=True)
class Walk:
    """Goes on until the end, a gate that nobody has decided at, or the word to stop."""

    order: Order
    workflow: Plugin
    folder: Documents
    ask: Callable[[Checkpoint, str, Question], Awaitable[Answer]]
    tell: Callable[[WorkerEvent], None]
    say: Say
    stopping: asyncio.Event
    stop_waiting: Callable[[], None]

    async def go(self, checkpoint: Checkpoint) -> Outcome:
        """As far as the graph goes; at a gate only a person's decision leads on."""
        graph = await self._graph(checkpoint)
        config: Any = {
            "configurable": {"thread_id": self.order.item.id},
            "recursion_limit": max(STEPS_A_ROUND, len(graph.nodes)) * (self.order.max_iterations + 1),
        }
        begun = await checkpoint.saver.aget_tuple(config) is not None
        given: Any = None if begun else {}
        parking = await self._parking(graph, config) if begun else None
        while True:
            if parking:
                decision = await checkpoint.noted(decision_note(parking.asked.number))
                if decision is None:
                    await checkpoint.note(PARKING, json.dumps(pack(parking)))
                    return Outcome(Ending.PARKED, rounds=parking.asked.round)
                given = resumed(decision)
            if interrupted := await self._step(graph, given, config, checkpoint):
                return interrupted
            parking = await self._parking(graph, config)
            if parking is None:
                return await self._conclude(graph, config, checkpoint)

    async def _parking(self, graph: Any, config: Any) -> Parking | None:
        """The gate that the graph waits at, if it does."""
        tasks = (await graph.aget_state(config)).tasks
        waiting = [(task.name, interrupt) for task in tasks for interrupt in task.interrupts]
        if not waiting:
            return None
        node, interrupt = waiting[0]
        item, asked = self.order.item, unpack(Asked, interrupt.value)
        lineage = str(Path(asked.draft).parent)
        return Parking(
            item.id, self.order.workflow, item.title, node, lineage, self.order.run, time.time(), asked
        )

    async def _step(self, graph: Any, given: Any, config: Any, checkpoint: Checkpoint) -> Outcome | None:
        """Walks to the next gate or to the end; gives an outcome only when told to stop on the way."""
        from langgraph.errors import GraphDrained, NodeCancelledError
        from langgraph.runtime import RunControl

        control = RunControl()
        walking = asyncio.ensure_future(graph.ainvoke(given, config, durability="sync", control=control))
        stopping = asyncio.create_task(self._stop(walking, control))
        try:
            await walking
        except (GraphDrained, NodeCancelledError, asyncio.CancelledError):
            if not self.stopping.is_set():
                raise
            following = (await graph.aget_state(config)).next
            if following and not following[0].startswith("__"):
                await checkpoint.note("node", following[0])
            return Outcome(Ending.INTERRUPTED)
        finally:
            stopping.cancel()
        return None

    async def _conclude(self, graph: Any, config: Any, checkpoint: Checkpoint) -> Outcome:
        snapshot = await graph.aget_state(config)
        if snapshot.tasks:
            return stumbled(f"the graph stopped before {', '.join(snapshot.next) or 'its end'}")
        await checkpoint.note("node", FINISHED)
        found = self.workflow.conclude(snapshot.values)
        return Outcome(Ending.FINISHED, found.verdict, found.rounds, result=found.result)

    async def _graph(self, checkpoint: Checkpoint) -> Any:
        kept = await checkpoint.noted(PARKING)
        desk = Desk(
            item=self.order.item,
            folder=self.folder,
            ask=functools.partial(self.ask, checkpoint),
            say=self.say,
            max_iterations=self.order.max_iterations,
            prompts=self.workflow.prompts,
            gates=self.order.gates,
            parked=unpack(Parking, json.loads(kept)).asked.number if kept else 0,
            text=self.order.text,
            tracker=_tracker(self.order, self.say),
        )
        graph = announced(self.workflow.graph(desk), functools.partial(self._announce, checkpoint))
        return graph.compile(checkpointer=checkpoint.saver)

    @contextlib.asynccontextmanager
    async def _announce(self, checkpoint: Checkpoint, node: str, round: int) -> AsyncIterator[None]:
        self.say(f">>> Executing: {node}")
        self.tell(NodeStarted(self.order.item.id, node, round))
        await checkpoint.note("node", node)
        began = time.monotonic()
        yield
        self.tell(NodeFinished(self.order.item.id, node, time.monotonic() - began))

    async def _stop(self, walking: "asyncio.Future[Any]", control: Any) -> None:
        await self.stopping.wait()
        control.request_drain()
        self.stop_waiting()
        await asyncio.sleep(GRACE)
        walking.cancel()


def _tracker(order: Order, say: Say) -> Tracker | None:
    if order.github is None or order.filed is None:
        return None
    from agentos.workflows.github.client import GitHub
    from agentos.workflows.github.tracker import GitHubTracker

    github = GitHub(order.github, say, random.random)
    return GitHubTracker(github, order.item, order.filed.address, order.filed.since)
