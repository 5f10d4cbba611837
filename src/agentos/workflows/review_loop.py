"""The draft and review loop that both built-in workflows share: load, draft, human gate, review, revise or finish."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, cast

from agentos.core.errors import InvalidSpec
from agentos.core.planning.gates import Gate
from agentos.core.planning.review_parser import Review, read_review
from agentos.core.protocol.ports import ModelRequest
from agentos.core.protocol.results import Verdict
from agentos.workflows.node_context import LineageFile, NodeContext, load_prompt_file
from agentos.workflows.review_metadata import ReviewMetadata
from agentos.workflows.sources.markdown import in_file

if TYPE_CHECKING:
    from langgraph.graph import StateGraph

SAME_ISSUES_AGAIN = "two reviews in a row named the same blocking issues"
DRAFTER, REVIEWER = "drafter", "reviewer"


class State(TypedDict, total=False):
    """The graph's state, in JSON types only: documents are files, referenced by path and hash.

    `files` counts the lineage files and `round` the drafts. `stage` is what a person can decide on next: a draft or a
    verdict. `gates` counts the decisions made by a person, `unreviewed` the drafts that a person sent back or rejected
    before the reviewer saw them.
    """

    source: LineageFile
    files: int
    round: int
    draft: LineageFile
    drafter: str
    verdict: str
    rationale: str
    reviewer: str
    feedback: list[LineageFile]
    blocking: list[str]
    stop_reason: str
    result: str
    stage: str
    gates: int
    unreviewed: int
    sent_back: bool


Node = Callable[[State], Awaitable[State]]


class ReviewLoop:
    """The load, draft and review nodes for one item. `kind` selects the prompts, `source_kind` names the source."""

    def __init__(self, context: NodeContext, kind: str, source_kind: str) -> None:
        self._context = context
        self._kind = kind
        self._source_kind = source_kind

    async def load(self, body: str, problems: tuple[str, ...]) -> State:
        item = self._context.item
        if problems or item.problems:
            raise InvalidSpec((*item.problems, *(in_file(item.source, problem) for problem in problems)))
        return {
            "source": self._context.write_lineage(1, self._source_kind, body),
            "files": 1,
            "round": 0,
            "feedback": [],
        }

    async def draft(self, state: State) -> State:
        context, number = self._context, state["round"] + 1
        prompt = context.prompt(
            f"{self._kind}_draft",
            source=context.read_lineage(state["source"]),
            draft=context.read_lineage(state["draft"]) if "draft" in state else "",
            feedback="\n\n".join(context.read_lineage(file) for file in state["feedback"]),
        )
        response = await context.ask(f"draft-{number}", ModelRequest(DRAFTER, prompt))
        files = state["files"] + 1
        context.say(f"Draft {number} written ({len(response.text.split())} words)")
        return {
            "draft": context.write_lineage(files, "draft", response.text),
            "files": files,
            "round": number,
            "drafter": response.model,
            "stage": Gate.DRAFT.value,
            "sent_back": False,
        }

    async def review(self, state: State) -> State:
        context, number = self._context, state["round"]
        prompt = context.prompt(
            f"{self._kind}_review",
            source=context.read_lineage(state["source"]),
            draft=context.read_lineage(state["draft"]),
        )
        response = await context.ask(
            f"review-{number}", ModelRequest(REVIEWER, prompt, load_prompt_file("verdict.schema.json"))
        )
        review = read_review(response.text)
        files = state["files"] + 1
        verdict = context.write_lineage(files, "verdict", _review_markdown(review, number, response.model))
        context.say(f"Review {number}: {review.verdict} ({len(review.blocking)} blocking)")
        return {
            "files": files,
            "verdict": review.verdict.value,
            "rationale": review.rationale,
            "reviewer": response.model,
            "feedback": [*state["feedback"], verdict],
            "blocking": review.fingerprint,
            "stop_reason": self._stop_reason(review, state),
            "stage": Gate.VERDICT.value,
        }

    def _stop_reason(self, review: Review, state: State) -> str:
        """Why the loop ends without approval; empty if it goes on."""
        if review.verdict is Verdict.APPROVED:
            return ""
        if review.fingerprint == state.get("blocking"):
            return SAME_ISSUES_AGAIN
        if reviews(state) >= self._context.max_iterations:
            return f"not approved in {reviews(state)} reviews (--max-iterations)"
        return ""

    def metadata(self, state: State) -> ReviewMetadata:
        item = self._context.item
        return ReviewMetadata(
            item=item.id,
            status=Verdict(state["verdict"]),
            rounds=reviews(state),
            drafter=state["drafter"],
            reviewer=state["reviewer"],
            date=self._context.today().date().isoformat(),
            source=item.source,
            source_sha256=item.digest,
        )

    def reasons(self, state: State) -> str:
        """The section that explains why a document was not approved."""
        feedback = self._context.read_lineage(state["feedback"][-1])
        return f"## Why it was not approved\n\nStopped: {state['stop_reason']}.\n\n{feedback}"


def reviews(state: State) -> int:
    """The number of reviews so far: one per round, except where a person decided first."""
    return state["round"] - state.get("unreviewed", 0)


def is_over(state: State) -> bool:
    """Whether the loop is finished, rather than going back to the draft."""
    return state["verdict"] == Verdict.APPROVED.value or bool(state["stop_reason"])


@dataclass(frozen=True, slots=True)
class Routes:
    """The nodes that can follow a node, and the function that chooses one of them."""

    nodes: tuple[str, ...]
    choose: Callable[[State], str]


def compose(nodes: Mapping[str, Node], routes: Mapping[str, Routes]) -> "StateGraph[Any, Any, Any, Any]":
    """A graph that runs the nodes in order, branching at those that have routes."""
    from langgraph.graph import END, START, StateGraph

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    names = list(nodes)
    for name, node in nodes.items():
        graph.add_node(name, cast(Any, node))
    for name, successor in zip([START, *names], [*names, END], strict=True):
        if name in routes:
            graph.add_conditional_edges(name, routes[name].choose, list(routes[name].nodes))
        else:
            graph.add_edge(name, successor)
    return graph


def _review_markdown(review: Review, number: int, model: str) -> str:
    lines = [
        f"# Review {number}: {review.verdict}",
        "",
        f"Reviewer: {model}",
        "",
        review.rationale,
        "",
    ]
    lines += [f"- **{entry.section}** ({entry.severity}): {entry.description}" for entry in review.blocking]
    return "\n".join(lines).rstrip() + "\n"
