"""A sync graph whose nodes use threads and start programs."""

import subprocess
import sys
from typing import TypedDict

from langgraph.graph import START, StateGraph

import agentos
from agentos.workflows import Workflow

llm = agentos.model("drafter")


class State(TypedDict, total=False):
    topic: str
    texts: list[str]
    size: str


def write(state: State) -> State:
    answers = llm.batch([f"{part} of {state['topic']}" for part in ("The beginning", "The end")])
    return {"texts": [answer.text for answer in answers]}


def measure(state: State) -> State:
    count = "import sys; print(len(sys.stdin.read().split()))"
    text = " ".join(state["texts"])
    done = subprocess.run(
        [sys.executable, "-c", count], input=text, capture_output=True, text=True, check=True
    )
    return {"size": done.stdout.strip()}


builder = StateGraph(State)
builder.add_node("write", write)
builder.add_node("measure", measure)
builder.add_edge(START, "write")
builder.add_edge("write", "measure")

workflow = Workflow.from_graph(
    builder,
    items="topics/*.md",
    input=lambda item: {"topic": item.title},
    output=lambda state, item: {f"out/{item.id}.md": "\n".join([*state["texts"], state["size"]])},
)
