"""Every file in topics/ becomes an essay: agentos run essays:workflow --all --parallel"""

from typing import TypedDict

from langgraph.graph import START, StateGraph

import agentos
from agentos.workflows import Workflow

llm = agentos.model("drafter")


class Essay(TypedDict, total=False):
    topic: str
    points: str
    essay: str


def plan(state: Essay) -> Essay:
    return {"points": llm.invoke(f"Name three points about:\n{state['topic']}").text}


def write(state: Essay) -> Essay:
    return {"essay": llm.invoke(f"Write a short essay with these points:\n{state['points']}").text}


builder = StateGraph(Essay)
builder.add_node("plan", plan)
builder.add_node("write", write)
builder.add_edge(START, "plan")
builder.add_edge("plan", "write")
graph = builder.compile()

workflow = Workflow.from_graph(
    graph,
    items="topics/*.md",
    input=lambda item: {"topic": item.text},
    output=lambda state, item: {f"essays/{item.name}.md": state["essay"]},
)
