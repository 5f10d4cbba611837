"""A workflow as it was found: checked, and whatever it raises is told as its own fault."""

import re
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentos.core.errors import AgentosError, BrokenWorkflow
from agentos.core.planning.items import Item, is_safe_id
from agentos.core.planning.plan import Candidate, ItemStatus
from agentos.core.protocol.ports import Documents
from agentos.workflows.base import REQUIRED, Conclusion, Workflow
from agentos.workflows.node_context import NodeContext

if TYPE_CHECKING:
    from langgraph.graph import StateGraph

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,15}")


@dataclass(slots=True)
class Plugin:
    """Somebody's workflow behind our own door; `origin` is the `module:object` that it was found at."""

    origin: str
    name: str
    prefix: str
    folders: tuple[str, ...]
    _found: Any

    @classmethod
    def of(cls, origin: str, found: Any) -> "Plugin":
        """Takes a class, an object or a module; says what is missing."""
        if isinstance(found, type):
            found = _made(origin, found)
        if missing := [name for name in REQUIRED if not hasattr(found, name)]:
            raise _broken(
                origin, f"is no workflow, it lacks {', '.join(missing)}; expected {', '.join(REQUIRED)}"
            )
        folders = getattr(found, "folders", ())
        plugin = cls(origin, found.name, found.prefix, folders, found)
        plugin._check()
        return plugin

    @property
    def prompts(self) -> Path | None:
        """The folder `prompts` beside the file that it was written in; None for ours, which are kept in memory."""
        if self.origin.startswith(f"{__package__}."):
            return None
        module = sys.modules.get(self.origin.partition(":")[0])
        return Path(module.__file__).parent / "prompts" if module and module.__file__ else None

    # The port.

    def candidates(self, project: Path) -> list[Candidate]:
        found = self._call("candidates", project)
        if not isinstance(found, list | tuple) or not all(isinstance(one, Candidate) for one in found):
            raise self._wrong("candidates", found, "a list of Candidate")
        for candidate in found:
            self._check_item(candidate.item)
        return list(found)

    def status(self, project: Path, item: Item) -> ItemStatus:
        found = self._call("status", project, item)
        if not isinstance(found, ItemStatus):
            raise self._wrong("status", found, "an ItemStatus")
        return found

    def graph(self, context: NodeContext) -> "StateGraph[Any, Any, Any, Any]":
        found = self._call("graph", context)
        graph: StateGraph[Any, Any, Any, Any] = getattr(found, "builder", found)
        if not hasattr(graph, "compile") or not hasattr(graph, "nodes"):
            raise self._wrong("graph", found, "a langgraph StateGraph")
        return graph

    def prepare(self, documents: Documents) -> None:
        self._call("prepare", documents)

    def conclude(self, state: Mapping[str, Any]) -> Conclusion:
        found = self._call("conclude", state)
        if not isinstance(found, Conclusion):
            raise self._wrong("conclude", found, "a Conclusion")
        return found

    def tidy(self, documents: Documents, number: int) -> None:
        self._call("tidy", documents, number)

    # What may be wrong.

    def _call(self, method: str, *arguments: object) -> Any:
        function = getattr(self._found, method, None) or getattr(Workflow, method).__get__(self)
        try:
            return function(*arguments)
        except AgentosError:
            raise
        except Exception as error:
            raise _broken(self.origin, f"{method}() raised {told(error)}") from error

    def _check(self) -> None:
        """Names become file names: they are held to what is safe."""
        for what, value, pattern in (("name", self.name, _NAME), ("prefix", self.prefix, _PREFIX)):
            if not isinstance(value, str) or not pattern.fullmatch(value):
                raise _broken(self.origin, f"has {what} = {value!r}; expected {pattern.pattern}")
        if not isinstance(self.folders, list | tuple) or not all(
            isinstance(one, str) for one in self.folders
        ):
            raise _broken(self.origin, f"has folders = {self.folders!r}; expected a tuple of folder names")

    def _check_item(self, item: Item) -> None:
        number = item.number if type(item.number) is int and item.number >= 0 else "NUMBER"
        if item.id != f"{self.prefix}-{number}" or not is_safe_id(item.id) or item.workflow != self.name:
            raise self._wrong(
                "candidates",
                item,
                f"items with id {self.prefix}-{number}, workflow {self.name!r} and a whole number over 0",
            )

    def _wrong(self, method: str, found: object, expected: str) -> BrokenWorkflow:
        return _broken(self.origin, f"{method}() gave {repr(found)[:80]}; expected {expected}")


def told(error: BaseException) -> str:
    """An error in one line, with the place it comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}{place}"


def _made(origin: str, kind: type) -> object:
    try:
        return kind()
    except Exception as error:
        raise _broken(
            origin, f"could not be made: {told(error)}; expected a class without arguments"
        ) from error


def _broken(origin: str, problem: str) -> BrokenWorkflow:
    return BrokenWorkflow(f"the workflow at {origin} {problem}")
