"""Runs the LangGraph graph of one item from its checkpoint as far as it goes, with an event before and after each node."""

import asyncio
import contextlib
import functools
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from agentos.codebase.project_code import ProjectCode
from agentos.core.planning.gates import GateRequest, ParkedItem
from agentos.core.planning.plan import FINISHED
from agentos.core.planning.worker_task import WorkerTask
from agentos.core.protocol.codec import pack, unpack
from agentos.core.protocol.events import NodeFinished, NodeStarted
from agentos.core.protocol.results import Ending, Outcome, failed_transient
from agentos.storage.item_store import Checkpoint, ItemStore
from agentos.storage.review_notes import PARKING, decision_note
from agentos.worker.model_session import ModelSession
from agentos.workflows.human_gate import resume_with
from agentos.workflows.node_context import NodeContext, Say, Tracker
from agentos.workflows.plugin import Plugin

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable, RunnableConfig
    from langgraph.graph import StateGraph

Publish = Callable[[str, int], AbstractAsyncContextManager[None]]
"""Takes a node's name and round; entered when the node starts, left when it ends."""
CANCEL_GRACE = 2.0  # seconds between the request to stop and the cancellation of the running node
STEPS_PER_ROUND = 8
BUILT_IN_NODES = "agentos.workflows."


@dataclass(frozen=True, slots=True)
class GraphRunner:
    """Runs the graph to its end, to a gate without a decision, or until the session is stopped."""

    task: WorkerTask
    workflow: Plugin
    store: ItemStore
    session: ModelSession
    echo: Say

    async def run(self, checkpoint: Checkpoint) -> Outcome:
        context = await self._context(checkpoint)
        graph = self._compile(context, checkpoint)
        config: Any = {
            "configurable": {"thread_id": self.store.thread_id},
            "recursion_limit": max(STEPS_PER_ROUND, len(graph.nodes)) * (self.task.max_iterations + 1),
        }
        is_resumed = await checkpoint.saver.aget_tuple(config) is not None
        graph_input: Any = None if is_resumed else self.workflow.input(context)
        parked = await self._parked_item(graph, config) if is_resumed else None
        while True:
            if parked:
                decision = await checkpoint.noted(decision_note(parked.request.number))
                if decision is None:
                    await checkpoint.note(PARKING, json.dumps(pack(parked)))
                    return Outcome(Ending.PARKED, rounds=parked.request.round)
                graph_input = resume_with(decision)
            if interrupted := await self._invoke(graph, graph_input, config, checkpoint):
                return interrupted
            parked = await self._parked_item(graph, config)
            if parked is None:
                return await self._conclude(graph, config, checkpoint, context)

    async def _context(self, checkpoint: Checkpoint) -> NodeContext:
        parking = await checkpoint.noted(PARKING)
        return NodeContext(
            item=self.task.item,
            folder=self.store.documents,
            ask=functools.partial(self.session.ask, checkpoint),
            forget=functools.partial(self.session.forget, checkpoint),
            say=self.echo,
            max_iterations=self.task.max_iterations,
            prompts=self.workflow.prompts,
            gates=self.task.gates,
            parked=unpack(ParkedItem, json.loads(parking)).request.number if parking else 0,
            text=self.task.text,
            tracker=self._tracker(),
            code=ProjectCode(self.task.code, Path(self.task.project)) if self.task.code else None,
        )

    def _compile(self, context: NodeContext, checkpoint: Checkpoint) -> Any:
        graph = with_node_events(
            self.workflow.graph(context), functools.partial(self._node_events, checkpoint)
        )
        return graph.compile(checkpointer=checkpoint.saver)

    def _tracker(self) -> Tracker | None:
        task = self.task
        if task.github is None or task.filed is None:
            return None
        from agentos.workflows.github.client import GitHub
        from agentos.workflows.github.tracker import GitHubTracker

        github = GitHub(task.github, self.echo, random.random)
        return GitHubTracker(github, task.item, task.filed.address, task.filed.since, task.filed.index)

    @contextlib.asynccontextmanager
    async def _node_events(self, checkpoint: Checkpoint, node: str, round: int) -> AsyncIterator[None]:
        self.echo(f">>> Executing: {node}")
        self.session.send(NodeStarted(self.task.item.id, node, round))
        await checkpoint.note("node", node)
        started_at = time.monotonic()
        yield
        self.session.send(NodeFinished(self.task.item.id, node, time.monotonic() - started_at))

    async def _parked_item(self, graph: Any, config: Any) -> ParkedItem | None:
        """The gate at which the graph waits for a person, if it does."""
        tasks = (await graph.aget_state(config)).tasks
        interrupts = [(task.name, interrupt) for task in tasks for interrupt in task.interrupts]
        if not interrupts:
            return None
        node, interrupt = interrupts[0]
        item, request = self.task.item, unpack(GateRequest, interrupt.value)
        lineage = str(Path(request.draft).parent)
        return ParkedItem(
            item.id, self.task.workflow, item.title, node, lineage, self.task.run, time.time(), request
        )

    async def _invoke(
        self, graph: Any, graph_input: Any, config: Any, checkpoint: Checkpoint
    ) -> Outcome | None:
        """Run to the next gate or to the end; returns an outcome only if stopped on the way."""
        from langgraph.errors import GraphDrained, NodeCancelledError
        from langgraph.runtime import RunControl

        control = RunControl()
        running = asyncio.ensure_future(
            graph.ainvoke(graph_input, config, durability="sync", control=control)
        )
        stopper = asyncio.create_task(self._stop_when_asked(running, control))
        try:
            await running
        except (GraphDrained, NodeCancelledError, asyncio.CancelledError):
            if not self.session.stopping.is_set():
                raise
            next_nodes = (await graph.aget_state(config)).next
            if next_nodes and not next_nodes[0].startswith("__"):
                await checkpoint.note("node", next_nodes[0])
            return Outcome(Ending.INTERRUPTED)
        finally:
            stopper.cancel()
        return None

    async def _stop_when_asked(self, running: "asyncio.Future[Any]", control: Any) -> None:
        """Stop at the next node boundary; after a grace period, cancel the running node."""
        await self.session.stopping.wait()
        control.request_drain()
        self.session.stop_waiting()
        await asyncio.sleep(CANCEL_GRACE)
        running.cancel()

    async def _conclude(
        self, graph: Any, config: Any, checkpoint: Checkpoint, context: NodeContext
    ) -> Outcome:
        snapshot = await graph.aget_state(config)
        if snapshot.tasks:
            return failed_transient(f"the graph stopped before {', '.join(snapshot.next) or 'its end'}")
        result = self.workflow.publish(context, snapshot.values)
        await checkpoint.note("node", FINISHED)
        conclusion = self.workflow.conclude(snapshot.values)
        return Outcome(
            Ending.FINISHED,
            conclusion.verdict,
            conclusion.rounds,
            details=(conclusion.reason,) if conclusion.reason else (),
            result=result or conclusion.result,
        )


def with_node_events(
    graph: "StateGraph[Any, Any, Any, Any]", publish: Publish
) -> "StateGraph[Any, Any, Any, Any]":
    """The same graph, publishing events around each node. Works on any graph, without its cooperation."""
    from langgraph.graph import StateGraph

    wrapped: StateGraph[Any, Any, Any, Any] = StateGraph(graph.state_schema)
    for name, spec in graph.nodes.items():
        wrapped.add_node(name, _wrap(name, cast("Runnable[Any, Any]", spec.runnable), publish))
        spec.runnable = wrapped.nodes[name].runnable
    return graph


def _wrap(name: str, node: "Runnable[Any, Any]", publish: Publish) -> Any:
    function = getattr(node, "afunc", None)
    if str(getattr(function, "__module__", "")).startswith(BUILT_IN_NODES):
        return _NodeWithEvents(name, node, publish)

    # LangGraph finds subgraphs among the variables that a node's function closes over: `node` must be one of them.
    async def run(state: Any, config: "RunnableConfig") -> Any:
        async with publish(name, _round(state)):
            return await node.ainvoke(state, config)

    return run


@dataclass(frozen=True, slots=True)
class _NodeWithEvents:
    """Wraps a node of a built-in workflow: an object, because LangGraph searches the code of functions for subgraphs.

    That search takes longer than everything else about building a graph, and the built-in nodes contain no subgraphs.
    """

    name: str
    node: "Runnable[Any, Any]"
    publish: Publish

    async def __call__(self, state: Any, config: "RunnableConfig") -> Any:
        async with self.publish(self.name, _round(state)):
            return await self.node.ainvoke(state, config)


def _round(state: object) -> int:
    found = state.get("round", 0) if isinstance(state, Mapping) else getattr(state, "round", 0)
    return found if isinstance(found, int) else 0
