"""The interface that every workflow implements: its items, its graph, and when an item is finished."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agentos.core.errors import BrokenWorkflow
from agentos.core.planning.gates import Gate
from agentos.core.planning.items import Candidate, Item, ItemStatus, SkippedFile
from agentos.core.protocol.ports import Documents
from agentos.core.protocol.results import Verdict
from agentos.workflows.markdown import Page
from agentos.workflows.node_context import NodeContext

if TYPE_CHECKING:
    from agentos.workflows.graph_workflow import GraphItem

REQUIRED = ("name", "prefix", "candidates", "status", "graph")
RetryOn = tuple[type[BaseException], ...] | Callable[[BaseException], bool]
LINEAGE_ACTIVE, LINEAGE_DONE = "docs/lineage/active", "docs/lineage/done"


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The outcome of a finished graph.

    `verdict` and `rounds` apply to workflows that review. `result` is the path or address of what was produced.
    """

    verdict: Verdict | None = None
    rounds: int = 0
    result: str = ""
    reason: str = ""
    """Why it was not approved, in one sentence."""


@dataclass(frozen=True, slots=True)
class GraphOptions:
    """How a workflow's graph is run; each has a default that suits most graphs.

    - `context`: the run's context, for a graph with a `context_schema`: an object, or a dict of its values. Values that
      are not given have the schema's defaults.
    - `recursion_limit`: the most steps that the graph may take from its start, or since a person's last answer. By
      default what the graph was configured with, or else LangGraph's limit.
    - `serde`: types in the graph's state that are restored from a checkpoint, besides those in its schemas and the data
      types of your own modules.
    - `retry_on`: the errors after which an item is tried again: exception types, or a function from the error to a
      bool. By default all but those that the same code raises again, such as KeyError and TypeError.
    """

    context: Any = None
    recursion_limit: int | None = None
    serde: tuple[type, ...] = ()
    retry_on: RetryOn | None = None


class WorkflowMembers(Protocol):
    """Defines which items exist, what happens to each of them, and when one is finished. See `Workflow`."""

    name: str
    """The name on the command line: `agentos run NAME`. Lower case."""
    prefix: str
    """The first part of every item id: `PREFIX-NUMBER`."""
    folders: tuple[str, ...] = ()
    """Folders in the project that hold the items. A folder that has one of them is a project."""

    uses_code: bool = False
    """Whether its nodes use `NodeContext.code`: if so, the project's code is indexed before the first worker starts."""

    reads_issues: bool = False
    """Whether its items are issues. If the project's issues are on GitHub, they are fetched before each run and passed to `with_issues`."""

    files_issues: bool = False
    """Whether its nodes file issues with `NodeContext.tracker`: if the project keeps those on GitHub, workers get the token."""

    gates: tuple[Gate, ...] = ()
    """The gates that its graph has and `--review` can ask for. `interrupt()` needs none: it always parks the item."""

    options: GraphOptions = GraphOptions()
    """How its graph is run."""

    env: tuple[str, ...] = ()
    """Environment variables that its nodes need, such as the key of a tool; others that look like secrets are withheld."""

    uses_gateway: bool = False
    """Whether its nodes create models themselves: if so, the variables that SDKs read lead to the run's gateway."""

    def candidates(self, project: Path) -> list[Candidate]:
        """All items with their status, in the order in which to process them. Must not write anything."""
        ...

    def status(self, project: Path, item: Item) -> ItemStatus:
        """The current status of one item. Called again just before work starts, and once more under the item's lock."""
        ...

    def graph(self, context: NodeContext) -> Any:
        """The LangGraph graph for one item: a StateGraph, compiled or not, or a function with `@entrypoint`."""
        ...

    def input(self, context: NodeContext) -> Any:
        """The input of the item's graph. By default, an empty state."""
        return {}

    def with_issues(self, pages: Sequence[Page]) -> "WorkflowMembers":
        """The same workflow with these open issues, from GitHub, as its items. Required if it has `reads_issues`."""
        raise BrokenWorkflow(f"the workflow {self.name!r} has reads_issues, but no with_issues()")

    def skipped(self, project: Path) -> list[SkippedFile]:
        """Files that look like items but are not, to be listed with the reason. By default, none."""
        return []

    def prepare(self, documents: Documents) -> None:
        """Writes whatever a run needs before it starts. Not called for a dry run."""
        return

    def conclude(self, state: Mapping[str, Any]) -> Conclusion:
        """Reads the outcome from the graph's final state. By default, `state["result"]` names what was produced."""
        return Conclusion(result=str(state.get("result", "")) if isinstance(state, Mapping) else "")

    def publish(self, context: NodeContext, state: Any) -> str:
        """Writes what the finished graph has produced, and returns its path. Must be idempotent. By default, nothing."""
        return ""

    def approved_documents(self, project: Path, item: Item) -> tuple[str, ...]:
        """Paths in the project of what an approved item has written. If they change, its redo is over. By default, none."""
        return ()

    def tidy(self, documents: Documents, number: int) -> None:
        """Cleans up after a finished item. Must be idempotent. By default, moves the item's lineage to `done/`."""
        _archive_lineage(documents, f"{number}-{self.name}")


class Workflow(WorkflowMembers, Protocol):
    """Base class of workflows, and the way to run an existing graph.

    Members with a default body are optional. Inherit from this class to get the defaults, or pass any class, object or
    module that has the required members: agentos fills in the rest. For a graph that knows nothing of agentos, use
    `from_graph`:

        workflow = Workflow.from_graph(
            graph,
            items="topics/*.md",
            input=lambda item: {"topic": item.text},
            output=lambda state, item: {f"out/{item.id}.md": state["text"]},
        )
    """

    @staticmethod
    def from_graph(  # noqa: PLR0913 - keywords, all but three optional
        graph: Any,
        *,
        items: str | Iterable[str],
        input: "Callable[[GraphItem], Any]",
        output: "Callable[[Any, GraphItem], Mapping[str, str | bytes] | None] | None" = None,
        env: Iterable[str] = (),
        gateway: bool = True,
        name: str = "",
        prefix: str = "",
        context: Any = None,
        recursion_limit: int | None = None,
        serde: Iterable[type] = (),
        retry_on: RetryOn | None = None,
    ) -> "Workflow":
        """A workflow that runs `graph`, compiled or not, once for each file that `items` matches.

        `items` is a pattern inside the project, or several. `input` returns the graph's input for an item. `output`
        returns the documents to write when the graph has ended, by their path in the project. `env` names the environment
        variables that the nodes need. With `gateway`, models that the graph creates itself use the run's keys. `name`
        and `prefix` default to the name of the items' folder. `GraphOptions` describes the others.
        """
        from agentos.workflows.graph_workflow import GraphSpec, GraphWorkflow

        options = GraphOptions(context, recursion_limit, tuple(serde), retry_on)
        spec = GraphSpec(graph, items, input, output, tuple(env), gateway, name, prefix, options)
        return GraphWorkflow(spec)


def _archive_lineage(documents: Documents, name: str) -> None:
    """Archive the lineage under a numeric suffix if earlier runs of the item left one there."""
    if not documents.exists(f"{LINEAGE_ACTIVE}/{name}"):
        return
    taken = set(documents.names(LINEAGE_DONE))
    target, suffix = name, 1
    while target in taken:
        suffix += 1
        target = f"{name}-{suffix}"
    documents.move(f"{LINEAGE_ACTIVE}/{name}", f"{LINEAGE_DONE}/{target}")
