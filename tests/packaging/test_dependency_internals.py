"""The undocumented parts of our dependencies that the source relies on are still where it expects them.

When one of these tests fails after an upgrade, change the module that it names and the bounds in pyproject.toml.
"""

import asyncio
import importlib.util
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import httpx2
import pydantic
import pytest
from langgraph.graph import START, StateGraph

from agentos.models.client_base import bound_body
from agentos.run.prestart import LAZY_PACKAGES
from agentos.storage.checkpoints import open_checkpoint


class State(TypedDict):
    text: str


@dataclass
class Named:
    text: str


def test_a_task_is_announced_before_it_runs_and_its_writes_are_kept_apart_from_interrupts() -> None:
    """Used by worker/graph_runner.py, which says what runs, and worker/questions.py, which knows what has ended."""
    from langgraph.checkpoint.base import WRITES_IDX_MAP

    seen = list[str]()

    async def write(state: State) -> State:
        seen.append("runs")
        return {"text": "written"}

    async def watch() -> None:
        graph: StateGraph[State, Any, Any, Any] = StateGraph(State)
        graph.add_node("write", write)
        graph.add_edge(START, "write")
        stream: Any = graph.compile().astream({"text": ""}, stream_mode=["tasks", "custom"], subgraphs=True)
        async for _, mode, task in stream:
            seen.append(f"{mode} {task['name']} {'starts' if 'input' in task else 'ends'}")

    asyncio.run(watch())
    assert seen == ["tasks write starts", "runs", "tasks write ends"]
    assert {"__interrupt__", "__resume__", "__error__"} <= WRITES_IDX_MAP.keys()


def test_each_interrupt_of_a_node_has_an_id_of_its_own() -> None:
    """Used by worker/graph_runner.py: an answer must not be given to the next question of the same node."""
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.types import Command, interrupt

    graph: StateGraph[State, Any, Any, Any] = StateGraph(State)
    graph.add_node("ask", lambda state: {"text": interrupt("first") + interrupt("second")})
    graph.add_edge(START, "ask")
    compiled: Any = graph.compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "1"}}
    first: Any = compiled.invoke({"text": ""}, config)["__interrupt__"][0]
    second: Any = compiled.invoke(Command(resume={first.id: "a"}), config)["__interrupt__"][0]
    assert (first.value, second.value) == ("first", "second") and first.id != second.id


def test_the_types_in_a_schema_can_be_collected() -> None:
    """Used by worker/state_serializer.py."""
    from langgraph._internal._serde import collect_allowlist_from_schemas

    assert collect_allowlist_from_schemas(schemas=[Named]) == {(Named.__module__, "Named")}


def test_a_graph_run_can_be_drained() -> None:
    """Used by worker/graph_runner.py."""
    from langgraph.errors import GraphDrained, NodeCancelledError
    from langgraph.runtime import RunControl

    assert callable(RunControl().request_drain)
    assert issubclass(GraphDrained, Exception) and issubclass(NodeCancelledError, BaseException)


def test_the_checkpoint_saver_waits_for_its_public_lock(tmp_path: Path) -> None:
    """Used by storage/checkpoints.py, which writes to the same connection."""

    async def read_while_locked() -> None:
        async with open_checkpoint(tmp_path / "item.db") as checkpoint, checkpoint.saver.lock:
            config: Any = {"configurable": {"thread_id": "LLD-42"}}
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(checkpoint.saver.aget_tuple(config), 0.05)

    asyncio.run(read_while_locked())


def test_a_response_body_that_a_hook_has_read_is_not_read_again() -> None:
    """Used by models/client_base.py, which fills `_content`."""

    async def get() -> bytes:
        transport = httpx2.MockTransport(lambda request: httpx2.Response(200, stream=Once()))
        hooks: Any = {"response": [bound_body]}
        async with httpx2.AsyncClient(transport=transport, event_hooks=hooks) as client:
            return (await client.get("http://model.invalid")).content

    class Once(httpx2.AsyncByteStream):
        async def __aiter__(self) -> Any:
            yield b"body"

    assert asyncio.run(get()) == b"body"


def test_the_http_library_of_the_sdks_makes_tls_contexts() -> None:
    """Used by models/registry.py."""
    assert isinstance(httpx2.create_ssl_context(), ssl.SSLContext)


def test_pydantic_models_defined_with_deferred_building_build_themselves_when_used() -> None:
    """Used by worker/main.py."""
    pydantic.BaseModel.model_config["defer_build"] = True
    try:

        class Deferred(pydantic.BaseModel):
            number: int
    finally:
        del pydantic.BaseModel.model_config["defer_build"]

    assert not Deferred.__pydantic_complete__
    assert Deferred(number=1).number == 1
    assert Deferred.__pydantic_complete__


@pytest.mark.parametrize("module", [*LAZY_PACKAGES, "langchain_core.tracers.langchain"])
def test_the_modules_whose_import_is_delayed_exist(module: str) -> None:
    """Used by engines/lazy_modules.py and worker/main.py."""
    assert importlib.util.find_spec(module) is not None
