"""Pydantic state, a store, and a context schema with defaults."""

from dataclasses import dataclass
from typing import Any

from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.memory import InMemoryStore
from pydantic import BaseModel

import agentos
from agentos.workflows import Workflow

llm = agentos.model("drafter")


class Note(BaseModel):
    text: str


class State(BaseModel):
    topic: str
    note: Any = None
    known: int = 0


@dataclass
class Style:
    tone: str = "plain"


def write(state: State, runtime: Runtime[Style]) -> dict[str, Any]:
    return {"note": Note(text=llm.invoke(f"In a {runtime.context.tone} tone: {state.topic}").text)}


def remember(state: State, runtime: Runtime[Style]) -> dict[str, Any]:
    assert isinstance(state.note, Note) and runtime.store
    runtime.store.put(("notes",), state.topic, {"text": state.note.text})
    return {"known": len(runtime.store.search(("notes",)))}


builder = StateGraph(State, context_schema=Style)
builder.add_node("write", write)
builder.add_node("remember", remember)
builder.add_edge(START, "write")
builder.add_edge("write", "remember")

workflow = Workflow.from_graph(
    builder.compile(store=InMemoryStore(), name="remembering"),
    items="topics/*.md",
    input=lambda item: {"topic": item.title},
    output=lambda state, item: {f"out/{item.id}.md": f"{state['note'].text}\n"},
)
