"""Makes a user's graph runnable for one item: our checkpoints and store in place of its own, everything else as compiled."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from agentos.core.errors import ItemError
from agentos.core.text.values import error_location
from agentos.storage.graph_store import add_initial, open_graph_store
from agentos.workflows.base import GraphOptions
from agentos.workflows.node_context import Say

INDEX_STAYS_IN_MEMORY = (
    "Warning: the graph's InMemoryStore has a search index, so it stays in memory: items do not share it, and an item "
    "that resumes has lost what it put there. To keep that, compile the graph with a store on disk, such as SqliteStore"
)
MOST_INITIAL = 1_000_000  # entries that a module may put into its store


@contextlib.asynccontextmanager
async def runnable_graph(found: Any, saver: Any, store_path: Path, say: Say) -> AsyncIterator[Any]:
    """The graph with our saver. An in-memory store is replaced by the project's, which outlives workers."""
    compiled = found.compile() if hasattr(found, "compile") else found
    async with contextlib.AsyncExitStack() as stack:
        changes: dict[str, Any] = {"checkpointer": saver}
        if _is_in_memory(compiled.store):
            if (
                compiled.store.index_config
            ):  # to index another store, this Python's SQLite would have to load extensions
                say(INDEX_STAYS_IN_MEMORY)
            else:
                changes["store"] = store = await stack.enter_async_context(open_graph_store(store_path))
                if initial := await compiled.store.asearch((), limit=MOST_INITIAL):
                    await add_initial(store_path, store, initial)
        yield compiled.copy(changes)


def run_context(graph: Any, options: GraphOptions) -> Any:
    """The run's context: from the workflow, or the defaults of the graph's context schema."""
    schema, given = getattr(graph, "context_schema", None), options.context
    if schema is None or (given is not None and not isinstance(given, dict)):
        return given
    if not (is_dataclass(schema) or hasattr(schema, "model_fields")):
        return given or {}
    try:
        return schema(**(given or {}))
    except (TypeError, ValueError) as error:
        raise ItemError(
            f"the graph's context cannot be made: {error_location(error)}",
            (
                f"give every value of {schema.__name__} that has no default: Workflow.from_graph(..., context=...)",
            ),
        ) from error


def step_limit(graph: Any, options: GraphOptions) -> int | None:
    """The most steps that the graph may take; None for LangGraph's own limit."""
    return options.recursion_limit or (graph.config or {}).get("recursion_limit")


def _is_in_memory(store: Any) -> bool:
    """Whether it is LangGraph's InMemoryStore itself: a subclass has a reason of its own, and is kept."""
    if store is None:
        return False
    from langgraph.store.memory import InMemoryStore

    return type(store) is InMemoryStore
