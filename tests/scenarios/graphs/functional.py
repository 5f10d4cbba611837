"""LangGraph's functional API."""

from typing import Any

from langgraph.func import entrypoint, task

import agentos
from agentos.workflows import Workflow

llm = agentos.model("drafter")


@task
def outline(topic: str) -> str:
    return str(llm.invoke(f"Outline: {topic}").text)


@task
def chapter(text: str, number: int) -> str:
    return str(llm.invoke(f"Chapter {number} of {text}").text)


@entrypoint()
def book(topic: str) -> Any:
    text = outline(topic).result()
    return [future.result() for future in [chapter(text, number) for number in (1, 2)]]


workflow = Workflow.from_graph(
    book,
    items="topics/*.md",
    input=lambda item: item.title,
    output=lambda state, item: {f"out/{item.id}.md": "\n".join(state)},
)
