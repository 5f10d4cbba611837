"""A checkpoint that leads to a node or an edge that the graph does not have any more."""

import asyncio
import contextlib
import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Send, interrupt

from agentos.core.errors import ItemError
from agentos.worker.graph_changes import check_continues

CONFIG: Any = {"configurable": {"thread_id": "1"}}


class State(TypedDict, total=False):
    said: Annotated[list[str], operator.add]


def fail(state: State) -> State:
    raise RuntimeError("down")


def ask(state: State) -> State:
    return {"said": [interrupt("?")]}


def say(state: State) -> State:
    return {"said": ["x"]}


def sequence(last: str) -> Any:
    builder: Any = StateGraph(State)
    builder.add_sequence([("first", say), (last, fail)])
    return builder.add_edge(START, "first")


def asking(last: str) -> Any:
    builder: Any = StateGraph(State)
    builder.add_sequence([("first", say), (last, ask)])
    return builder.add_edge(START, "first")


def fan_out(last: str) -> Any:
    builder: Any = StateGraph(State)
    builder.add_node(last, fail)
    return builder.add_conditional_edges(START, lambda state: [Send(last, {}), Send(last, {})], [last])


def nested(last: str) -> Any:
    builder: Any = StateGraph(State)
    builder.add_node("inner", asking(last).compile())
    return builder.add_edge(START, "inner")


def joined(last: str) -> Any:
    """One branch has ended when the other fails, in the same step."""
    builder: Any = StateGraph(State)
    builder.add_node("quick", say)
    builder.add_node("slow", fail)
    builder.add_node(last, say)
    builder.add_edge(START, "quick")
    builder.add_edge(START, "slow")
    return builder.add_edge(["quick", "slow"], last)


def check(old: Any, new: Any) -> None:
    """Run the old graph until it stops, then continue with the new one."""

    async def run() -> None:
        saver = InMemorySaver()
        with contextlib.suppress(RuntimeError):
            await old.compile(checkpointer=saver).ainvoke({}, CONFIG)
        await check_continues(new.compile(checkpointer=saver), saver, CONFIG, "TOPICS-1")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("graph", "node"),
    [(sequence, "last"), (asking, "last"), (fan_out, "last"), (nested, "inner/last"), (joined, "last")],
)
def test_a_node_that_was_renamed_is_named_and_an_unchanged_graph_continues(
    graph: Callable[[str], Any], node: str
) -> None:
    check(graph("last"), graph("last"))
    with pytest.raises(ItemError) as raised:
        check(graph("last"), graph("renamed"))
    assert str(raised.value) == f"its checkpoint continues at the node {node}, which the graph no longer has"
    assert "--fresh TOPICS-1" in raised.value.details[0]


def test_an_edge_that_waits_for_a_branch_more_is_named() -> None:
    new = joined("last")
    new.waiting_edges.clear()
    new.add_node("third", say)
    new.add_edge(START, "third")
    new.add_edge(["quick", "slow", "third"], "last")
    with pytest.raises(ItemError, match="continues at the edge from quick and slow to last, which"):
        check(joined("last"), new)


def test_a_node_that_has_run_may_be_renamed() -> None:
    new: Any = StateGraph(State)
    new.add_sequence([("renamed", say), ("last", fail)])
    check(sequence("last"), new.add_edge(START, "renamed"))
