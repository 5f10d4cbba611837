"""What a workflow is: where items come from, the graph, what is finished."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agentos.core.items import Item
from agentos.core.plan import Candidate, Standing
from agentos.core.ports import Documents
from agentos.core.results import Verdict
from agentos.workflows.desk import Desk

if TYPE_CHECKING:
    from langgraph.graph import StateGraph


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What a finished graph came to."""

    verdict: Verdict
    rounds: int
    result: str


class Workflow(Protocol):
    name: str
    prefix: str
    folders: tuple[str, ...]
    """Where its items come from, below the project; one of them makes a project."""

    def candidates(self, project: Path) -> list[Candidate]:
        """Every item there is, in order, with where it stands; reads only."""
        ...

    def prepare(self, documents: Documents) -> None:
        """What must be written before a run can begin; not called for a dry run."""
        ...

    def standing(self, project: Path, item: Item) -> Standing:
        """Where one item stands now; asked again under its lock."""
        ...

    def graph(self, desk: Desk) -> "StateGraph[Any, Any, Any, Any]":
        """The LangGraph graph, not compiled."""
        ...

    def conclude(self, state: dict[str, Any]) -> Conclusion:
        """The verdict in the last state of the graph."""
        ...

    def tidy(self, documents: Documents, number: int) -> None:
        """Clears up after a finished item; doing it again does no harm."""
        ...
