"""Items the way a plain LangGraph script processes them: one graph, one process, a SQLite checkpoint file per item.

python bare_langgraph.py PROJECT FIRST COUNT, with the keys and the server URL in the environment.
"""

import asyncio
import itertools
import os
import sys
from pathlib import Path
from typing import Any, TypedDict

from google import genai
from google.genai import types
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import StateGraph

MODEL = "gemini-2.5-pro"
NODES = ("load", "draft", "edit", "review", "finish")


class State(TypedDict, total=False):
    path: str
    text: str
    draft: str
    review: str


class Script:
    """The nodes of the graph: as many as the built-in workflow has, with the same two calls."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._client = genai.Client(
            api_key="given-per-call",
            http_options=types.HttpOptions(base_url=os.environ["GEMINI_BASE_URL_1"]),
        )

    async def load(self, state: State) -> State:
        with open(state["path"]) as file:  # noqa: ASYNC230
            return {"text": file.read()}

    async def draft(self, state: State) -> State:
        return {"draft": await self._ask(f"Write a low-level design for this issue:\n\n{state['text']}")}

    async def edit(self, state: State) -> State:
        return {}

    async def review(self, state: State) -> State:
        return {"review": await self._ask(f"Review this design; APPROVED or REVISE:\n\n{state['draft']}")}

    async def finish(self, state: State) -> State:
        with open(self._results / Path(state["path"]).name, "w") as file:  # noqa: ASYNC230
            file.write(f"{state['draft']}\n\n{state['review']}\n")
        return {}

    async def _ask(self, prompt: str) -> str:
        options = types.HttpOptions(headers={"x-goog-api-key": os.environ["GEMINI_API_KEY_1"]})
        stream = await self._client.aio.models.generate_content_stream(
            model=MODEL, contents=prompt, config=types.GenerateContentConfig(http_options=options)
        )
        return "".join([chunk.text or "" async for chunk in stream])


async def main(project: Path, first: int, count: int) -> None:
    results = project / "out"
    results.mkdir(exist_ok=True)
    script = Script(results)
    graph = StateGraph(State)
    for name in NODES:
        graph.add_node(name, getattr(script, name))
    for before, after in itertools.pairwise(NODES):
        graph.add_edge(before, after)
    graph.set_entry_point(NODES[0])
    graph.set_finish_point(NODES[-1])
    for number in range(first, first + count):
        path = str(project / "issues" / f"{number:03}.md")
        async with AsyncSqliteSaver.from_conn_string(str(project / f"{number}.db")) as saver:
            config: Any = {"configurable": {"thread_id": str(number)}}
            compiled = graph.compile(checkpointer=saver)
            await compiled.ainvoke({"path": path}, config, durability="sync")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
