"""The store that a graph was compiled with, in the worker of an item."""

import asyncio
from pathlib import Path
from typing import Any, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.memory import InMemoryStore

from agentos.worker.graph_setup import runnable_graph

NOTES = ("notes",)


class State(TypedDict, total=False):
    put: dict[str, Any]
    found: list[dict[str, Any]]


def work(state: State, runtime: Runtime[None]) -> State:
    assert runtime.store
    for key, value in state.get("put", {}).items():
        runtime.store.put(NOTES, key, value)
    return {"found": sorted((item.value for item in runtime.store.search(NOTES)), key=str)}


def run(store: Any, path: Path, **put: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """What a node finds in the store, in a worker of its own, and what the worker says."""
    builder = StateGraph(State)
    builder.add_node("work", work)
    builder.add_edge(START, "work")
    compiled, said = builder.compile(store=store), list[str]()

    async def worker() -> Any:
        async with runnable_graph(compiled, InMemorySaver(), path, said.append) as graph:
            return await graph.ainvoke({"put": put}, {"configurable": {"thread_id": "T-1"}})

    return asyncio.run(worker())["found"], said


def filled(text: str) -> InMemoryStore:
    """As a module makes it when it is loaded, in each worker again."""
    store = InMemoryStore()
    store.put(NOTES, "tone", {"text": text})
    return store


def test_what_a_module_puts_into_its_store_is_there_and_nodes_may_change_it(tmp_path: Path) -> None:
    path = tmp_path / "stores/topics.db"
    assert run(filled("plain"), path) == ([{"text": "plain"}], [])
    assert run(filled("plain"), path, tone={"text": "warm"})[0] == [{"text": "warm"}]
    assert run(filled("plain"), path)[0] == [{"text": "warm"}], "a later item finds what the earlier one put"
    assert run(filled("terse"), path)[0] == [{"text": "terse"}], "the module has changed"


def test_a_store_with_an_index_is_kept_and_its_limits_are_said(tmp_path: Path) -> None:
    def embed(texts: Any) -> list[list[float]]:
        return [[float(len(text)), 1.0] for text in texts]

    found, said = run(InMemoryStore(index={"dims": 2, "embed": embed}), tmp_path / "t.db", a={"text": "x"})
    assert found == [{"text": "x"}] and not (tmp_path / "t.db").exists()
    assert len(said) == 1 and "stays in memory: items do not share it" in said[0]


def test_a_store_of_ones_own_is_kept(tmp_path: Path) -> None:
    class Own(InMemoryStore):
        """Such as one that writes its entries somewhere."""

    store = Own()
    assert run(store, tmp_path / "t.db", a={"text": "x"}) == ([{"text": "x"}], [])
    assert store.get(NOTES, "a") and not (tmp_path / "t.db").exists()
