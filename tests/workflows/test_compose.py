"""The graphs of the built-in workflows."""

import asyncio
import inspect
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver

from agentos.workflows.review_loop import State, compose


async def load(state: State) -> State:
    return {"round": 1}


def test_a_composed_graph_runs_its_nodes() -> None:
    graph = compose({"N0_load_issue": load}, {}).compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "LLD-42"}}
    assert asyncio.run(graph.ainvoke({}, config))["round"] == 1


def test_langgraph_does_not_disassemble_the_nodes_to_look_for_subgraphs() -> None:
    node = compose({"N0_load_issue": load}, {}).nodes["N0_load_issue"].runnable
    assert not inspect.isroutine(getattr(node, "afunc", load)), "it searches functions only"
