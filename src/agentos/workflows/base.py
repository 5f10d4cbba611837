"""What a workflow is: where items come from, the graph, what is finished."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agentos.core.planning.items import Item
from agentos.core.planning.plan import Candidate, ItemStatus
from agentos.core.protocol.ports import Documents
from agentos.core.protocol.results import Verdict
from agentos.workflows.lineage import retire
from agentos.workflows.node_context import NodeContext

if TYPE_CHECKING:
    from langgraph.graph import StateGraph

REQUIRED = ("name", "prefix", "candidates", "status", "graph")


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What a finished graph came to; a workflow without reviews has neither verdict nor rounds."""

    verdict: Verdict | None = None
    rounds: int = 0
    result: str = ""


class Workflow(Protocol):
    """What has a body here may be left out: of a class that inherits from this one, or of any object."""

    name: str
    """What people type: `agentos run NAME`; lower case."""
    prefix: str
    """How its items are called: `PREFIX-NUMBER`."""
    folders: tuple[str, ...] = ()
    """Where its items come from, below the project; one of them makes a project."""

    def candidates(self, project: Path) -> list[Candidate]:
        """Every item there is, in order, with where it stands; reads only."""
        ...

    def status(self, project: Path, item: Item) -> ItemStatus:
        """Where one item stands now; asked again under its lock."""
        ...

    def graph(self, context: NodeContext) -> "StateGraph[Any, Any, Any, Any]":
        """The LangGraph graph, not compiled."""
        ...

    def prepare(self, documents: Documents) -> None:
        """What must be written before a run can begin; not called for a dry run."""
        return

    def conclude(self, state: Mapping[str, Any]) -> Conclusion:
        """What the last state of the graph came to; as it stands, `result` names what was written."""
        return Conclusion(result=str(state.get("result", "")))

    def tidy(self, documents: Documents, number: int) -> None:
        """Clears up after a finished item; doing it again does no harm. As it stands, its lineage is retired."""
        retire(documents, f"{number}-{self.name}")
