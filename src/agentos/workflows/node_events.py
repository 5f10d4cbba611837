"""Every node of a graph, announced when it begins and when it has ended."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable, RunnableConfig
    from langgraph.graph import StateGraph

Announce = Callable[[str, int], AbstractAsyncContextManager[None]]


def with_node_events(
    graph: "StateGraph[Any, Any, Any, Any]", announce: Announce
) -> "StateGraph[Any, Any, Any, Any]":
    """The same graph; whoever wrote it need not know of announcements."""
    from langgraph.graph import StateGraph

    wrapped: StateGraph[Any, Any, Any, Any] = StateGraph(graph.state_schema)
    for name, spec in graph.nodes.items():
        wrapped.add_node(name, _announced(name, cast("Runnable[Any, Any]", spec.runnable), announce))
        spec.runnable = wrapped.nodes[name].runnable
    return graph


@dataclass(frozen=True, slots=True)
class _NodeWithEvents:
    """An object and no function: LangGraph looks through the code of functions for graphs inside.

    That takes longer than all the rest of a graph, and the nodes of this package hold none.
    """

    name: str
    node: "Runnable[Any, Any]"
    announce: Announce

    async def __call__(self, state: Any, config: "RunnableConfig") -> Any:
        async with self.announce(self.name, _round(state)):
            return await self.node.ainvoke(state, config)


def _is_ours(node: object) -> bool:
    function = getattr(node, "afunc", None)
    return str(getattr(function, "__module__", "")).startswith(f"{__package__}.")


def _announced(name: str, node: "Runnable[Any, Any]", announce: Announce) -> Any:
    if _is_ours(node):
        return _NodeWithEvents(name, node, announce)

    async def run(state: Any, config: "RunnableConfig") -> Any:
        async with announce(name, _round(state)):
            return await node.ainvoke(state, config)

    return run


def _round(state: object) -> int:
    found = state.get("round", 0) if isinstance(state, Mapping) else getattr(state, "round", 0)
    return found if isinstance(found, int) else 0
