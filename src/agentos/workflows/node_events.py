"""Wraps every node of a graph so that its start and end are published as events."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable, RunnableConfig
    from langgraph.graph import StateGraph

Publish = Callable[[str, int], AbstractAsyncContextManager[None]]
"""Takes a node's name and round; entered when the node starts, left when it ends."""


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
    if str(getattr(function, "__module__", "")).startswith(f"{__package__}."):
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
