"""A node that streams `agentos.model`: pieces as they come, whole or not at all, and paid for once."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agentos.http.connection import Connection, HttpRequest
from tests.gateway.scripted import events, provider
from tests.models.streams import STOP, end_events, text_event

from .harness import KEYS, CompletedCommand, RunHarness, wait_until

HEAD = """
import os
from pathlib import Path
from typing import TypedDict
from langgraph.graph import START, StateGraph
import agentos
from agentos.workflows import Workflow

llm = agentos.model("drafter")

class State(TypedDict, total=False):
    topic: str
    texts: list[str]
"""
TAIL = """
builder = StateGraph(State)
builder.add_node("write", write)
builder.add_edge(START, "write")
workflow = Workflow.from_graph(
    builder, items="topics/*.md", input=lambda item: {"topic": item.title},
    output=lambda state, item: {f"out/{item.id}.txt": "|".join(state["texts"])},
)
"""
PIECES = ("First line\nthi", "rd ", "line\nthe end")
WHOLE = "".join(PIECES)


@dataclass(slots=True)
class StreamingModel:
    """Sends an answer in pieces, each after the file `go-N` is in the project, or at once if `paced` is off."""

    project: Path
    paced: bool = False
    cut_after: dict[int, int] = field(default_factory=dict)
    """After how many pieces the connection of which call, counted from 1, is closed."""
    calls: int = 0

    async def handle(self, request: HttpRequest, out: Connection) -> None:
        self.calls += 1
        call = self.calls
        await events(out)
        for number, text in enumerate(PIECES):
            if number == self.cut_after.get(call):
                out.finish()
                return
            if self.paced:
                await asyncio.to_thread(wait_until, (self.project / f"go-{number}").exists)
            out.put(text_event("gemini", text))
            await out.flush()
        out.put(end_events("gemini", STOP["gemini"]))
        out.finish()


@pytest.fixture
def model(harness: RunHarness) -> Iterator[StreamingModel]:
    (harness.project / "topics").mkdir()
    (harness.project / "topics/1-snow.md").write_text("# Snow\n")
    streaming = StreamingModel(harness.project)
    with provider(streaming.handle) as url:
        harness.urls.append(url)
        harness.keys = KEYS[:1]
        yield streaming


def run(harness: RunHarness, node: str, *flags: str) -> CompletedCommand:
    (harness.project / "flow.py").write_text(f"{HEAD}{node}{TAIL}")
    return harness.start("run", "flow:workflow", "1", *flags, program="agentos").wait(60)


def written(harness: RunHarness) -> list[str]:
    return (harness.project / "out/TOPICS-1.txt").read_text().split("|")


def test_a_stream_has_the_pieces_of_the_provider_and_its_lines_reach_the_log(
    harness: RunHarness, model: StreamingModel
) -> None:
    model.paced = True
    node = """
async def write(state):
    texts = []
    Path("go-0").touch()
    async for chunk in llm.astream(state["topic"]):
        texts += [chunk.text] if chunk.text else []
        Path(f"go-{len(texts)}").touch()
    return {"texts": texts}
"""
    done = run(harness, node)
    assert done.code == 0, done.out + done.err
    assert written(harness) == list(PIECES)
    lines = done.lines_of("TOPICS-1")
    assert [line for line in lines if "line" in line or "the end" in line] == [
        "First line",
        "third line",
        "the end",
    ]
    [call] = harness.events("call_completed")
    assert call["usage"]["output_tokens"] == 4000


@pytest.mark.slow
def test_a_finished_stream_is_not_paid_for_again_after_a_crash(
    harness: RunHarness, model: StreamingModel
) -> None:
    node = """
def write(state):
    chunks = list(llm.stream(state["topic"]))
    if not Path("crashed").exists():
        Path("crashed").touch()
        os.kill(os.getpid(), 9)
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    return {"texts": [whole.text, str(whole.usage_metadata["output_tokens"])]}
"""
    done = run(harness, node)
    assert done.code == 0, done.out + done.err
    assert written(harness) == [WHOLE, "4000"] and model.calls == 1


@pytest.mark.slow
def test_a_cut_stream_is_an_error_and_never_a_short_answer(
    harness: RunHarness, model: StreamingModel
) -> None:
    model.cut_after = {1: 2}
    node = """
def write(state):
    return {"texts": ["".join(chunk.text for chunk in llm.stream(state["topic"]))]}
"""
    failed = run(harness, node, "--retries", "0")
    assert failed.code == 1 and "a streamed answer was cut off" in failed.out, failed.out
    assert "Traceback" not in failed.out and not (harness.project / "out").exists()
    model.cut_after = {2: 1}
    done = run(harness, node)
    assert done.code == 0, done.out + done.err
    assert written(harness) == [WHOLE] and model.calls == 3


@pytest.mark.slow
def test_a_reader_that_stops_early_gives_the_key_back_and_keeps_nothing(
    harness: RunHarness, model: StreamingModel
) -> None:
    model.paced = True
    (harness.project / "go-0").touch()
    node = """
async def write(state):
    stream = llm.astream("first")
    async for chunk in stream:
        break
    await stream.aclose()
    for number in (1, 2):
        Path(f"go-{number}").touch()
    return {"texts": [chunk.text, (await llm.ainvoke("second")).text]}
"""
    done = run(harness, node)
    assert done.code == 0, done.out + done.err
    assert written(harness) == [PIECES[0], WHOLE] and model.calls == 2


@pytest.mark.slow
@pytest.mark.parametrize("call", ["await llm.ainvoke(state['topic'])", "llm.invoke(state['topic'])"])
def test_a_graph_streamed_in_messages_mode_gets_the_pieces(
    harness: RunHarness, model: StreamingModel, call: str
) -> None:
    """As a node does that runs a graph of its own and passes its messages on."""
    node = f"""
{"async " if "await" in call else ""}def inner(state):
    return {{"texts": [({call}).text]}}

agent = StateGraph(State).add_node("inner", inner).add_edge(START, "inner").compile()

async def write(state):
    texts = []
    async for chunk, about in agent.astream(state, stream_mode="messages"):
        assert about["langgraph_node"] == "inner"
        texts += [chunk.text] if chunk.text else []
    return {{"texts": texts}}
"""
    done = run(harness, node)
    assert done.code == 0, done.out + done.err
    assert written(harness) == list(PIECES), json.dumps(written(harness))


def test_the_pieces_wait_for_nothing(harness: RunHarness, model: StreamingModel) -> None:
    """A sync node in a thread reads each piece while the provider still holds the next one back."""
    model.paced = True
    node = """
def write(state):
    texts = []
    Path("go-0").touch()
    for chunk in llm.stream(state["topic"]):
        texts += [chunk.text] if chunk.text else []
        Path(f"go-{len(texts)}").touch()
    return {"texts": texts}
"""
    (harness.project / "flow.py").write_text(f"{HEAD}{node}{TAIL}")
    running = harness.start("run", "flow:workflow", "1", program="agentos")
    wait_until(lambda: (harness.project / "go-3").exists() or running.process.poll() is not None, 60)
    assert running.wait(60).code == 0, running.out
    assert written(harness) == list(PIECES)
