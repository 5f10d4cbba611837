"""Detects that a graph was changed in such a way that its checkpoint leads to a node or an edge that is gone.

LangGraph ignores what such a checkpoint says: the graph would end there, and an incomplete state would look like a result.
"""

from collections.abc import Iterator
from typing import Any

from agentos.core.errors import ItemError

_TO_NODE, _JOIN = "branch:to:", "join:"  # how the channels are called that start a node


async def check_continues(graph: Any, saver: Any, config: Any, item: str) -> None:
    """Raises ItemError if the checkpoint continues at something that the graph does not have any more."""
    snapshot = await graph.aget_state(config, subgraphs=True)
    async for problem in _problems(graph, saver, snapshot, ""):
        raise ItemError(
            f"its checkpoint continues at {problem}",
            (f"change the graph back, or start it over with --fresh {item}",),
        )


async def _problems(graph: Any, saver: Any, snapshot: Any, outer: str) -> Any:
    found = await saver.aget_tuple(snapshot.config)
    if found is None:
        return
    for channel, value in _waiting(found):
        node = value.node if channel == "__pregel_tasks" else channel.rpartition(":")[2]
        if node not in graph.nodes:
            yield f"the node {outer}{node}, which the graph no longer has"
        elif channel.startswith((_TO_NODE, _JOIN)) and channel not in graph.channels:
            sources = channel.removeprefix(_JOIN).rpartition(":")[0].replace("+", " and ")
            yield f"the edge from {sources} to {outer}{node}, which the graph no longer has"
    subgraphs = dict(graph.get_subgraphs())
    for task in snapshot.tasks:
        if hasattr(task.state, "tasks") and task.name in subgraphs:
            async for problem in _problems(subgraphs[task.name], saver, task.state, f"{outer}{task.name}/"):
                yield problem


def _waiting(found: Any) -> Iterator[tuple[str, Any]]:
    """The channels that will start nodes, with their values; those of `Send` once for each value."""
    from langgraph.types import Send

    written = [(channel, value) for _, channel, value in found.pending_writes or ()]
    for channel, value in [*found.checkpoint["channel_values"].items(), *written]:
        if channel == "__pregel_tasks":
            sends = value if isinstance(value, list | tuple) else [value]
            yield from ((channel, send) for send in sends if isinstance(send, Send))
        elif channel.startswith(_TO_NODE) or (channel.startswith(_JOIN) and any(value)):
            yield channel, value
