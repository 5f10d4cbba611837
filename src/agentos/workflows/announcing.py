"""Every node of a graph, announced when it begins and when it has ended."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable, RunnableConfig
    from langgraph.graph import StateGraph

Announce = Callable[[str, int], AbstractAsyncContextManager[None]]


def announced(
    graph: "StateGraph[Any, Any, Any, Any]", announce: Announce
) -> "StateGraph[Any, Any, Any, Any]":
    """The same graph; whoever wrote it need not know of announcements."""
    from langgraph.graph import StateGraph

    wrapped: StateGraph[Any, Any, Any, Any] = StateGraph(graph.state_schema)
    for name, spec in graph.nodes.items():
        wrapped.add_node(name, _announced(name, cast("Runnable[Any, Any]", spec.runnable), announce))
        spec.runnable = wrapped.nodes[name].runnable
    return graph


def _announced(name: str, node: "Runnable[Any, Any]", announce: Announce) -> Any:
    async def run(state: Any, config: "RunnableConfig") -> Any:
        async with announce(name, _round(state)):
            return await node.ainvoke(state, config)

    return run


def _round(state: object) -> int:
    found = state.get("round", 0) if isinstance(state, Mapping) else getattr(state, "round", 0)
    return found if isinstance(found, int) else 0
