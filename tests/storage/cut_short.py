"""A graph that is stopped between a node's output and the choice of the next node, and goes on from its checkpoint."""

import asyncio
import contextlib
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph


class TwoNodes(TypedDict, total=False):
    first: str
    second: str


async def stop_and_resume(saver: Any, thread: str) -> dict[str, Any]:
    """The state at the end of the second run."""
    is_choosing, may_choose = asyncio.Event(), asyncio.Event()

    async def first(state: TwoNodes) -> TwoNodes:
        return {"first": "done"}

    async def second(state: TwoNodes) -> TwoNodes:
        return {"second": "done"}

    async def choose(state: TwoNodes) -> str:
        is_choosing.set()
        await may_choose.wait()
        return "second"

    graph = StateGraph(TwoNodes)
    graph.add_node("first", first)
    graph.add_node("second", second)
    graph.add_edge(START, "first")
    graph.add_conditional_edges("first", choose, ["second"])
    graph.add_edge("second", END)
    compiled = graph.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": thread}}

    async def stream() -> None:
        # As a worker runs a graph: this way LangGraph also stores what a cancelled task has written so far.
        async for _ in compiled.astream(
            {"first": ""}, config, stream_mode=["tasks", "custom"], subgraphs=True, durability="sync"
        ):
            pass

    running = asyncio.create_task(stream())
    await is_choosing.wait()
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    may_choose.set()
    return dict(await compiled.ainvoke(None, config, durability="sync"))
