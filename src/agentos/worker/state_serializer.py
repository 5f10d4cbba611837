"""Restores a graph's state from its checkpoint, including objects of the user's own types: by name, never by pickle."""

import enum
import importlib.util
import logging
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from agentos.core.errors import ItemError


@dataclass(frozen=True, slots=True)
class OwnModules:
    """The modules that belong to the user: those in the project's folder, and the package of the workflow."""

    project: Path
    package: str

    def defines(self, module: str, name: str) -> bool:
        """Whether this is a data type of one of these modules, which is imported if necessary."""
        if not self._is_own(module):
            return False
        found = getattr(importlib.import_module(module), name, None)
        is_data = is_dataclass(found) or hasattr(found, "model_fields") or hasattr(found, "_fields")
        return isinstance(found, type) and (is_data or issubclass(found, enum.Enum))

    def _is_own(self, module: str) -> bool:
        package = module.partition(".")[0]
        if package == "agentos":
            return False
        if package == self.package:
            return True
        origin = getattr(sys.modules.get(module), "__file__", None)
        if origin is None and package not in sys.stdlib_module_names:
            spec = importlib.util.find_spec(package)
            origin = spec.origin if spec else None
        parts = Path(origin).resolve() if origin else None
        is_inside = parts is not None and parts.is_relative_to(self.project.resolve())
        return is_inside and parts is not None and "site-packages" not in parts.parts


class StateSerializer(JsonPlusSerializer):
    """LangGraph's serializer, restricted to known types. An unknown type is an error that says how to allow it.

    Known are LangGraph's and LangChain's own types, those in the graph's schemas, those in `serde`, and the data types
    (dataclasses, pydantic models, enums, named tuples) of the user's own modules.
    """

    def __init__(self, types: Callable[[], set[tuple[str, ...]]], own: OwnModules) -> None:
        super().__init__(allowed_msgpack_modules=None)
        self._inner = JsonPlusSerializer(allowed_msgpack_modules=None)
        self._types = types
        self._own = own
        # A refused type becomes an error of the item, which says how to allow it.
        logging.getLogger("langgraph.checkpoint.serde.jsonplus").addFilter(_is_not_about_blocked_types)

    def dumps_typed(self, value: Any) -> tuple[str, bytes]:
        try:
            return self._inner.dumps_typed(value)
        except TypeError as error:
            raise ItemError(
                f"its state cannot be kept in a checkpoint: {error}",
                ("use plain data, dataclasses or pydantic models in the state",),
            ) from error

    def with_msgpack_allowlist(self, types: Iterable[tuple[str, ...] | type]) -> "StateSerializer":
        """Called by LangGraph to add the types in the schema of a subgraph."""
        self._inner = self._inner.with_msgpack_allowlist(types)
        return self

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        while True:
            value, blocked = self._load(data)
            if not blocked:
                return value
            known = self._types()
            for module, name in sorted(blocked - known):
                if not self._own.defines(module, name):
                    raise ItemError(
                        f"its state contains an object of type {module}.{name}, which is not restored from checkpoints",
                        (f"allow it with Workflow.from_graph(..., serde=[{name}]), then run it again",),
                    )
            self._inner = self._inner.with_msgpack_allowlist(blocked)

    def _load(self, data: tuple[str, bytes]) -> tuple[Any, set[tuple[str, str]]]:
        from langgraph.checkpoint.serde.event_hooks import register_serde_event_listener

        blocked, thread = set[tuple[str, str]](), threading.get_ident()

        def listen(event: Any) -> None:
            if event["kind"] == "msgpack_blocked" and threading.get_ident() == thread:
                blocked.add((event["module"], event["name"]))

        unregister = register_serde_event_listener(listen)
        try:
            return self._inner.loads_typed(data), blocked
        finally:
            unregister()


def schema_types(graph: Any, extra: Iterable[type]) -> set[tuple[str, ...]]:
    """The types in the schemas of a compiled graph and its subgraphs, and those that the user has listed."""
    from langgraph._internal._serde import collect_allowlist_from_schemas

    found: set[tuple[str, ...]] = {(kind.__module__, kind.__name__) for kind in extra}
    for each in (graph, *(subgraph for _, subgraph in graph.get_subgraphs(recurse=True))):
        builder = getattr(each, "builder", None)
        schemas = [
            *(getattr(builder, name, None) for name in ("state_schema", "input_schema", "output_schema")),
            *(spec.input_schema for spec in (builder.nodes.values() if builder else ())),
            getattr(each, "context_schema", None),
        ]
        channels = builder.channels if builder else each.channels
        found |= collect_allowlist_from_schemas(schemas=[each for each in schemas if each], channels=channels)
    return found


def _is_not_about_blocked_types(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("Blocked deserialization of ")
