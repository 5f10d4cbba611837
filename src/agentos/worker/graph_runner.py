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

from agentos.core.planning.gates import GateRequest, ParkedItem
from agentos.core.planning.plan import FINISHED
from agentos.core.planning.worker_task import WorkerTask
from agentos.core.protocol.codec import pack, unpack
from agentos.core.protocol.events import NodeFinished, NodeStarted, WorkerEvent
from agentos.core.protocol.ports import Documents, ModelRequest, ModelResponse
from agentos.core.protocol.results import Ending, Outcome, failed_transient
from agentos.storage.checkpoints import Checkpoint
from agentos.storage.review_notes import PARKING, decision_note
from agentos.workflows.human_gate import resumed
from agentos.workflows.node_context import NodeContext, Say, Tracker
from agentos.workflows.node_events import with_node_events
from agentos.workflows.plugin import Plugin

GRACE = 2.0
STEPS_A_ROUND = 8


@dataclass(frozen=True, slots=True)
class GraphRunner:
    """Goes on until the end, a gate that nobody has decided at, or the word to stop."""

    task: WorkerTask
    workflow: Plugin
    folder: Documents
    ask: Callable[[Checkpoint, str, ModelRequest], Awaitable[ModelResponse]]
    send_event: Callable[[WorkerEvent], None]
    say: Say
    stopping: asyncio.Event
    stop_waiting: Callable[[], None]

    async def run(self, checkpoint: Checkpoint) -> Outcome:
        """As far as the graph goes; at a gate only a person's decision leads on."""
        graph = await self._graph(checkpoint)
        config: Any = {
            "configurable": {"thread_id": self.task.item.id},
            "recursion_limit": max(STEPS_A_ROUND, len(graph.nodes)) * (self.task.max_iterations + 1),
        }
        prestarted = await checkpoint.saver.aget_tuple(config) is not None
        given: Any = None if prestarted else {}
        parking = await self._parking(graph, config) if prestarted else None
        while True:
            if parking:
                decision = await checkpoint.noted(decision_note(parking.request.number))
                if decision is None:
                    await checkpoint.note(PARKING, json.dumps(pack(parking)))
                    return Outcome(Ending.PARKED, rounds=parking.request.round)
                given = resumed(decision)
            if interrupted := await self._step(graph, given, config, checkpoint):
                return interrupted
            parking = await self._parking(graph, config)
            if parking is None:
                return await self._conclude(graph, config, checkpoint)

    async def _parking(self, graph: Any, config: Any) -> ParkedItem | None:
        """The gate that the graph waits at, if it does."""
        tasks = (await graph.aget_state(config)).tasks
        waiting = [(task.name, interrupt) for task in tasks for interrupt in task.interrupts]
        if not waiting:
            return None
        node, interrupt = waiting[0]
        item, asked = self.task.item, unpack(GateRequest, interrupt.value)
        lineage = str(Path(asked.draft).parent)
        return ParkedItem(
            item.id, self.task.workflow, item.title, node, lineage, self.task.run, time.time(), asked
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
            return failed_transient(f"the graph stopped before {', '.join(snapshot.next) or 'its end'}")
        await checkpoint.note("node", FINISHED)
        found = self.workflow.conclude(snapshot.values)
        return Outcome(Ending.FINISHED, found.verdict, found.rounds, result=found.result)

    async def _graph(self, checkpoint: Checkpoint) -> Any:
        kept = await checkpoint.noted(PARKING)
        context = NodeContext(
            item=self.task.item,
            folder=self.folder,
            ask=functools.partial(self.ask, checkpoint),
            say=self.say,
            max_iterations=self.task.max_iterations,
            prompts=self.workflow.prompts,
            gates=self.task.gates,
            parked=unpack(ParkedItem, json.loads(kept)).request.number if kept else 0,
            text=self.task.text,
            tracker=_tracker(self.task, self.say),
        )
        graph = with_node_events(
            self.workflow.graph(context), functools.partial(self._publish_node, checkpoint)
        )
        return graph.compile(checkpointer=checkpoint.saver)

    @contextlib.asynccontextmanager
    async def _publish_node(self, checkpoint: Checkpoint, node: str, round: int) -> AsyncIterator[None]:
        self.say(f">>> Executing: {node}")
        self.send_event(NodeStarted(self.task.item.id, node, round))
        await checkpoint.note("node", node)
        began = time.monotonic()
        yield
        self.send_event(NodeFinished(self.task.item.id, node, time.monotonic() - began))

    async def _stop(self, walking: "asyncio.Future[Any]", control: Any) -> None:
        await self.stopping.wait()
        control.request_drain()
        self.stop_waiting()
        await asyncio.sleep(GRACE)
        walking.cancel()


def _tracker(order: WorkerTask, say: Say) -> Tracker | None:
    if order.github is None or order.filed is None:
        return None
    from agentos.workflows.github.client import GitHub
    from agentos.workflows.github.tracker import GitHubTracker

    github = GitHub(order.github, say, random.random)
    return GitHubTracker(github, order.item, order.filed.address, order.filed.since)
