"""LangChain's own models in a graph, unchanged: `make langchain` installs the packages that this needs."""

from pathlib import Path

import pytest

from .harness import RunHarness

for package in ("langchain_anthropic", "langchain_google_genai", "langchain_openai"):
    pytest.importorskip(package)

GRAPH = """
from typing import TypedDict
from langchain.chat_models import init_chat_model
from langchain_anthropic import ChatAnthropic
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI
from langgraph.graph import START, StateGraph
from agentos.workflows import Workflow

models = [
    ChatGoogleGenerativeAI(model="gemini-2.5-pro"),
    ChatOpenAI(model="gpt-5"),
    ChatAnthropic(model="claude-sonnet-4-5"),
    init_chat_model("google_genai:gemini-2.5-flash"),
]

class State(TypedDict, total=False):
    topic: str
    tokens: list[int]

def write(state):
    return {"tokens": [model.invoke(state["topic"]).usage_metadata["total_tokens"] for model in models]}

builder = StateGraph(State)
builder.add_node("write", write)
builder.add_edge(START, "write")
workflow = Workflow.from_graph(
    builder, items="topics/*.md", input=lambda item: {"topic": item.text},
    output=lambda state, item: {f"out/{item.name}": str(sum(state["tokens"]))},
)
"""


@pytest.mark.slow
def test_models_of_langchain_find_the_pool_and_are_counted(harness: RunHarness) -> None:
    (harness.project / "topics").mkdir()
    for name in ("snow", "rain"):
        (harness.project / "topics" / f"{name}.md").write_text(f"# {name}\n")
    (harness.project / "flow.py").write_text(GRAPH)
    started = harness.start("run", "flow:workflow", "--all", "-j", "2", "--offline", program="agentos")
    done = started.wait(240)  # four SDKs are imported in each worker
    assert done.code == 0, done.out + done.err
    for item in harness.summary()["items"]:
        written = Path(harness.project / "out" / item["item"].partition("-")[2]).read_text()
        assert item["usage"]["calls"] == 4
        assert item["usage"]["input_tokens"] + item["usage"]["output_tokens"] == int(written)
