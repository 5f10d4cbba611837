"""Validating wrapper around a workflow: checks what it provides and attributes its errors to it."""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentos.core.errors import AgentosError, BrokenWorkflow
from agentos.core.planning.gates import Gate
from agentos.core.planning.items import Candidate, Item, ItemStatus, SkippedFile, is_safe_id
from agentos.core.protocol.ports import Documents
from agentos.core.text.values import error_location
from agentos.workflows.base import REQUIRED, Conclusion, GraphOptions, Workflow
from agentos.workflows.graph_workflow import GraphWorkflow
from agentos.workflows.markdown import Page
from agentos.workflows.node_context import NodeContext

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
MISSING = object()
FLAGS = ("uses_code", "uses_gateway", "reads_issues", "files_issues")
OPTIONAL = ("folders", *FLAGS, "env", "gates", "options")
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,15}")


@dataclass(slots=True)
class Plugin:
    """A loaded workflow, built-in or not, with every call checked. `origin` is its `module:object` path.

    Whatever the workflow raises or returns wrongly becomes a BrokenWorkflow error that names the origin.
    """

    origin: str
    name: str
    prefix: str
    folders: tuple[str, ...]
    uses_code: bool
    uses_gateway: bool
    reads_issues: bool
    files_issues: bool
    env: tuple[str, ...]
    gates: tuple[Gate, ...]
    options: GraphOptions
    _target: Any

    @classmethod
    def of(cls, origin: str, target: Any) -> "Plugin":
        """Wraps a class, an object or a module; raises if a required member is missing or invalid."""
        if isinstance(target, type):
            try:
                target = target()
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                problem = f"could not be instantiated: {error_location(error)}"
                raise _broken(origin, f"{problem}; expected a class without arguments") from error
        if isinstance(target, GraphWorkflow):
            target.origin = origin
        found = {name: read_member(origin, target, name) for name in (*REQUIRED, *OPTIONAL)}
        if missing := [name for name in REQUIRED if found[name] is MISSING]:
            problem = f"is not a workflow: missing {', '.join(missing)}; expected {', '.join(REQUIRED)}"
            if hasattr(target, "get_graph") or hasattr(target, "add_node"):
                problem = "is a LangGraph graph: make a workflow of it with Workflow.from_graph"
            raise _broken(origin, problem)
        folders = () if found["folders"] is MISSING else found["folders"]
        gates = () if found["gates"] is MISSING else found["gates"]
        options = found["options"] if isinstance(found["options"], GraphOptions) else GraphOptions()
        flags = {name: found[name] is True for name in FLAGS}
        env = () if found["env"] is MISSING else found["env"]
        name, prefix = found["name"], found["prefix"]
        plugin = cls(
            origin, name, prefix, folders, **flags, env=env, gates=gates, options=options, _target=target
        )
        plugin._check_names()
        return plugin

    @property
    def prompts(self) -> Path | None:
        """The `prompts` folder next to the workflow's module; None for the built-in ones, which are preloaded."""
        if self.origin.startswith(f"{__package__}."):
            return None
        module = sys.modules.get(self.origin.partition(":")[0])
        return Path(module.__file__).parent / "prompts" if module and module.__file__ else None

    def candidates(self, project: Path) -> list[Candidate]:
        found = self._call("candidates", project)
        if not isinstance(found, list | tuple) or not all(isinstance(entry, Candidate) for entry in found):
            raise self._unexpected("candidates", found, "a list of Candidate")
        for candidate in found:
            self._check_item(candidate.item)
        return list(found)

    def status(self, project: Path, item: Item) -> ItemStatus:
        found = self._call("status", project, item)
        if not isinstance(found, ItemStatus):
            raise self._unexpected("status", found, "an ItemStatus")
        return found

    def graph(self, context: NodeContext) -> Any:
        """A StateGraph, or a compiled graph with all its compile options."""
        found = self._call("graph", context)
        if not hasattr(found, "nodes") or not (hasattr(found, "compile") or hasattr(found, "astream")):
            raise self._unexpected("graph", found, "a langgraph graph")
        return found

    def skipped(self, project: Path) -> list[SkippedFile]:
        found = self._call("skipped", project)
        if not isinstance(found, list | tuple) or not all(isinstance(entry, SkippedFile) for entry in found):
            raise self._unexpected("skipped", found, "a list of SkippedFile")
        return list(found)

    def with_issues(self, pages: Sequence[Page]) -> "Plugin":
        """The same workflow with these issues as its items."""
        return Plugin.of(self.origin, self._call("with_issues", pages))

    def prepare(self, documents: Documents) -> None:
        self._call("prepare", documents)

    def conclude(self, state: Mapping[str, Any]) -> Conclusion:
        found = self._call("conclude", state)
        if not isinstance(found, Conclusion):
            raise self._unexpected("conclude", found, "a Conclusion")
        return found

    def input(self, context: NodeContext) -> Any:
        return self._call("input", context)

    def publish(self, context: NodeContext, state: Any) -> str:
        found = self._call("publish", context, state)
        if not isinstance(found, str):
            raise self._unexpected("publish", found, "the path of what was produced")
        return found

    def approved_documents(self, project: Path, item: Item) -> tuple[str, ...]:
        found = self._call("approved_documents", project, item)
        if not isinstance(found, list | tuple) or not all(isinstance(name, str) for name in found):
            raise self._unexpected("approved_documents", found, "a tuple of paths")
        return tuple(found)

    def tidy(self, documents: Documents, number: int) -> None:
        self._call("tidy", documents, number)

    def _call(self, method: str, *arguments: object) -> Any:
        """Calls the workflow's method, or the default of `Workflow` if it has none."""
        function = read_member(self.origin, self._target, method)
        if function is MISSING or function is None:
            function = getattr(Workflow, method).__get__(self)
        try:
            return function(*arguments)
        except (AgentosError, KeyboardInterrupt):
            raise
        except BaseException as error:  # including SystemExit and the like, which must not end the run
            if method == "publish" and isinstance(self._target, GraphWorkflow):
                method = "output"  # as it is called in `from_graph`
            raise _broken(self.origin, f"{method}() raised {error_location(error)}") from error

    def _check_names(self) -> None:
        """Names become parts of file names, so only safe ones are accepted."""
        for what, value, pattern in (("name", self.name, _NAME), ("prefix", self.prefix, _PREFIX)):
            if not isinstance(value, str) or not pattern.fullmatch(value):
                raise _broken(self.origin, f"has {what} = {value!r}; expected {pattern.pattern}")
        for what, names, of in (("folders", self.folders, "folder"), ("env", self.env, "variable")):
            if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
                raise _broken(self.origin, f"has {what} = {names!r}; expected a tuple of {of} names")

    def _check_item(self, item: Item) -> None:
        has_number = type(item.number) is int and item.number >= 0
        number = item.number if has_number else "NUMBER"
        # A file without a number has a name, which must not be mistaken for another item's number.
        rest = item.id.removeprefix(f"{self.prefix}-")
        is_named = rest != item.id and not rest.isdecimal()
        is_known = has_number and (is_named or rest == str(number))
        if not is_known or not is_safe_id(item.id) or item.workflow != self.name:
            raise self._unexpected(
                "candidates",
                item,
                f"items with id {self.prefix}-{number}, workflow {self.name!r} and a non-negative integer number",
            )

    def _unexpected(self, method: str, found: object, expected: str) -> BrokenWorkflow:
        return _broken(self.origin, f"{method}() returned {repr(found)[:80]}; expected {expected}")


def read_member(origin: str, target: Any, name: str) -> Any:
    """An attribute of the workflow, or MISSING. Reading one may run the workflow's code, as in __getattr__."""
    try:
        return getattr(target, name, MISSING)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _broken(origin, f"cannot be used: {name} raised {error_location(error)}") from error


def _broken(origin: str, problem: str) -> BrokenWorkflow:
    return BrokenWorkflow(f"the workflow at {origin} {problem}")
