"""Answers that a graph cannot use are not replayed for ever, and those that it can use are not paid for twice."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from agentos.http.connection import Connection, HttpRequest
from agentos.models.warmup import event_stream
from tests.gateway.scripted import provider
from tests.models.streams import send_events

from .harness import KEYS, CompletedCommand, RunHarness

HEAD = """
import json, os
from pathlib import Path
from typing import TypedDict
from langgraph.graph import START, StateGraph
from pydantic import BaseModel
import agentos
from agentos.workflows import Workflow

llm = agentos.model("drafter")

class State(TypedDict, total=False):
    topic: str
    text: str

class Score(BaseModel):
    points: int
"""
TAIL = """
builder = StateGraph(State)
builder.add_node("write", write)
builder.add_edge(START, "write")
workflow = Workflow.from_graph(
    builder, items="topics/*.md", input=lambda item: {"topic": item.title},
    output=lambda state, item: {f"out/{item.id}.txt": state["text"]}, **options
)
"""
STRUCTURED = """
def write(state):
    score = llm.with_structured_output(Score).invoke(state["topic"])
    return {"text": str(score.points)}
"""
PARSED = """
def write(state):
    return {"text": str(json.loads(llm.invoke(state["topic"]).text)["points"])}
"""


@dataclass(slots=True)
class ScriptedAnswers:
    """Gives these parts as answers, one per call, the last one again and again."""

    parts: list[dict[str, Any]]
    calls: int = 0
    bodies: list[bytes] = field(default_factory=list)

    async def handle(self, request: HttpRequest, out: Connection) -> None:
        part = self.parts[min(self.calls, len(self.parts) - 1)]
        self.calls += 1
        self.bodies.append(request.body)
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
        usage = {"promptTokenCount": 10, "candidatesTokenCount": 5}
        send_events(out, event_stream([{"candidates": [candidate], "usageMetadata": usage}]))


def scored(points: object) -> dict[str, Any]:
    return {"functionCall": {"name": "Score", "args": {"points": points}}}


@pytest.fixture
def model(harness: RunHarness) -> Iterator[ScriptedAnswers]:
    (harness.project / "topics").mkdir()
    (harness.project / "topics/1-snow.md").write_text("# Snow\n")
    scripted = ScriptedAnswers([])
    with provider(scripted.handle) as url:
        harness.urls.append(url)
        harness.keys = KEYS[:1]
        yield scripted


def run(harness: RunHarness, node: str, options: str = "{}") -> CompletedCommand:
    (harness.project / "flow.py").write_text(f"{HEAD}{node}\noptions = {options}{TAIL}")
    return harness.start("run", "flow:workflow", "1", program="agentos").wait(60)


def written(harness: RunHarness) -> str:
    return (harness.project / "out/TOPICS-1.txt").read_text()


def test_an_answer_that_breaks_its_schema_is_asked_for_once_more(
    harness: RunHarness, model: ScriptedAnswers
) -> None:
    model.parts = [scored("many"), scored(7)]
    done = run(harness, STRUCTURED)
    assert done.code == 0 and written(harness) == "7", done.out
    assert model.calls == 2 and b"could not be used: points" in model.bodies[1]


@pytest.mark.slow
def test_a_correction_survives_a_crash_and_nothing_is_paid_for_twice(
    harness: RunHarness, model: ScriptedAnswers
) -> None:
    model.parts = [scored("many"), scored(7)]
    crash = STRUCTURED.replace(
        "    return",
        "    if not Path('x').exists():\n        Path('x').touch()\n        os.kill(os.getpid(), 9)\n    return",
    )
    done = run(harness, crash)
    assert done.code == 0 and written(harness) == "7", done.out
    assert model.calls == 2


@pytest.mark.slow
def test_two_answers_that_break_their_schema_are_not_kept(
    harness: RunHarness, model: ScriptedAnswers
) -> None:
    model.parts = [scored("many"), {"text": "lots"}, scored(7)]
    failed = run(harness, STRUCTURED)
    assert failed.code == 1 and "flow.py" in failed.out, failed.out
    done = run(harness, STRUCTURED)
    assert done.code == 0 and written(harness) == "7", done.out
    assert model.calls == 3


@pytest.mark.slow
def test_a_node_that_fails_on_the_same_answer_twice_asks_anew(
    harness: RunHarness, model: ScriptedAnswers
) -> None:
    model.parts = [{"text": "lots of points"}, {"text": '{"points": 7}'}]
    first = run(harness, PARSED)
    assert first.code == 1 and "JSONDecodeError" in first.out, first.out
    second = run(harness, PARSED)
    assert second.code == 1 and "the next attempt calls the model again" in second.out, second.out
    assert model.calls == 1, "the code might have been corrected in the meantime"
    third = run(harness, PARSED)
    assert third.code == 0 and written(harness) == "7" and model.calls == 2, third.out


@pytest.mark.slow
def test_a_kept_answer_serves_a_node_whose_code_was_corrected(
    harness: RunHarness, model: ScriptedAnswers
) -> None:
    model.parts = [{"text": "lots of points"}]
    assert run(harness, PARSED).code == 1
    done = run(harness, 'def write(state):\n    return {"text": llm.invoke(state["topic"]).text}\n')
    assert done.code == 0 and written(harness) == "lots of points" and model.calls == 1, done.out


@pytest.mark.slow
def test_an_error_that_is_to_be_tried_again_is_tried_with_a_new_answer(
    harness: RunHarness, model: ScriptedAnswers
) -> None:
    model.parts = [{"text": "lots"}, {"text": "many"}, {"text": '{"points": 7}'}]
    done = run(harness, PARSED, '{"retry_on": (ValueError,)}')
    assert done.code == 0 and written(harness) == "7" and model.calls == 3, done.out
