"""`--parallel auto` in a real run: the number of workers follows what the keys can use."""

import pytest

from .harness import RunHarness, RunningCommand

SLOW_ITEMS = """
import time
from typing import TypedDict

from langgraph.graph import START, StateGraph

import agentos
from agentos.workflows import Workflow

llm = agentos.model("drafter")


class Text(TypedDict, total=False):
    text: str


def write(state: Text) -> Text:
    for _ in range(4):
        time.sleep(1.0)
        llm.invoke(state["text"])
    return {}


builder = StateGraph(Text)
builder.add_node("write", write)
builder.add_edge(START, "write")
workflow = Workflow.from_graph(
    builder.compile(),
    items="topics/*.md",
    input=lambda item: {"text": item.text},
    output=lambda state, item: {f"done/{item.name}.md": "done"},
)
"""
ITEMS = 60


def start(harness: RunHarness, *server: str) -> RunningCommand:
    """Items that spend most of their time between calls, on four keys that admit one call at a time each."""
    (harness.project / "flow.py").write_text(SLOW_ITEMS)
    (harness.project / "topics").mkdir()
    for number in range(1, ITEMS + 1):
        (harness.project / "topics" / f"{number:02}.md").write_text(f"# Topic {number}\n\nSnow.\n")
    keys = tuple(f"key-{number}" for number in range(1, 5))
    harness.server("--latency", "0.1,0.1", *server, keys=keys)
    # Without Linux's own calls, other programs' use of the processors is unknown, and so limits nothing.
    arguments = ("run", "flow:workflow", "--all", "--parallel", "auto")
    return harness.start(*arguments, program="agentos", AGENTOS_PORTABLE="1")


def changes(harness: RunHarness) -> list[tuple[int, int]]:
    """The number of workers before and after each change."""
    return [(one["previous"], one["workers"]) for one in harness.events("worker_count_changed")]


@pytest.mark.slow
def test_a_run_adds_workers_while_they_hardly_wait_for_keys(harness: RunHarness) -> None:
    running = start(harness)
    running.wait_for("10 workers from now on (previously 8): workers hardly waited for keys", 60)
    assert changes(harness) == [(4, 8), (8, 10)]
    assert running.wait(120).code == 0


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_run_reduces_its_workers_when_they_wait_for_keys_for_long(harness: RunHarness) -> None:
    running = start(harness, "--rpm", "12")
    running.wait_for("workers hardly waited for keys", 60)
    running.wait_for("workers waited for keys", 300)
    (*_, (before, after)) = changes(harness)
    assert after < before and "Busy workers finish their items first." in running.out
    assert not harness.events("worker_killed")
    assert harness.run("stop", program="agentos").code == 0
    running.wait(60)
