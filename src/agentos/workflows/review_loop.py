"""The graph that both workflows share: load, draft, human gate, review, revise or finalise."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from agentos.core.errors import InvalidSpec
from agentos.core.planning.gates import Gate
from agentos.core.planning.review_parser import Review, read_review
from agentos.core.protocol.ports import ModelRequest
from agentos.core.protocol.results import Verdict
from agentos.workflows.node_context import Kept, NodeContext
from agentos.workflows.prompt_files import load_prompt_file
from agentos.workflows.review_metadata import ReviewMetadata
from agentos.workflows.sources.markdown import in_file

if TYPE_CHECKING:
    from langgraph.graph import StateGraph

SAME_AGAIN = "two reviews in a row named the same blocking issues"
DRAFTER, REVIEWER = "drafter", "reviewer"


class State(TypedDict, total=False):
    """JSON types only; documents are files, remembered by path and hash.

    `stage` is what there is to judge: a draft, or a verdict on it; `gates` counts those where a person decided,
    `unreviewed` the drafts that a person sent back or rejected before their review.
    """

    source: Kept
    files: int
    round: int
    draft: Kept
    drafter: str
    verdict: str
    rationale: str
    reviewer: str
    feedback: list[Kept]
    blocking: list[str]
    stop_reason: str
    result: str
    stage: str
    gates: int
    unreviewed: int
    sent_back: bool


Node = Callable[[State], Awaitable[State]]


class ReviewLoop:
    """The nodes, for one item at one desk; `kind` names the prompts."""

    def __init__(self, context: NodeContext, kind: str, source_kind: str) -> None:
        self._context = context
        self._kind = kind
        self._source_kind = source_kind

    async def load(self, body: str, problems: tuple[str, ...]) -> State:
        if problems or self._context.item.problems:
            item = self._context.item
            raise InvalidSpec((*item.problems, *(in_file(item.source, problem) for problem in problems)))
        return {
            "source": self._context.keep(1, self._source_kind, body),
            "files": 1,
            "round": 0,
            "feedback": [],
        }

    async def draft(self, state: State) -> State:
        context, number = self._context, state["round"] + 1
        prompt = context.prompt(
            f"{self._kind}_draft",
            source=context.fetch(state["source"]),
            draft=context.fetch(state["draft"]) if "draft" in state else "",
            feedback="\n\n".join(context.fetch(kept) for kept in state["feedback"]),
        )
        answer = await context.ask(f"draft-{number}", ModelRequest(DRAFTER, prompt))
        files = state["files"] + 1
        context.say(f"Draft {number} written ({len(answer.text.split())} words)")
        return {
            "draft": context.keep(files, "draft", answer.text),
            "files": files,
            "round": number,
            "drafter": answer.model,
            "stage": Gate.DRAFT.value,
            "sent_back": False,
        }

    async def review(self, state: State) -> State:
        context, number = self._context, state["round"]
        prompt = context.prompt(
            f"{self._kind}_review",
            source=context.fetch(state["source"]),
            draft=context.fetch(state["draft"]),
        )
        answer = await context.ask(f"review-{number}", ModelRequest(REVIEWER, prompt, _schema()))
        review = read_review(answer.text)
        files = state["files"] + 1
        verdict = context.keep(files, "verdict", _review_markdown(review, number, answer.model))
        context.say(f"Review {number}: {review.verdict} ({len(review.blocking)} blocking)")
        return {
            "files": files,
            "verdict": review.verdict.value,
            "rationale": review.rationale,
            "reviewer": answer.model,
            "feedback": [*state["feedback"], verdict],
            "blocking": review.fingerprint,
            "stop_reason": self._why_stop(review, state),
            "stage": Gate.VERDICT.value,
        }

    def _why_stop(self, review: Review, state: State) -> str:
        if review.verdict is Verdict.APPROVED:
            return ""
        if review.fingerprint == state.get("blocking"):
            return SAME_AGAIN
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
        """What a design that was not approved is written with."""
        feedback = self._context.fetch(state["feedback"][-1])
        return f"## Why it was not approved\n\nStopped: {state['stop_reason']}.\n\n{feedback}"


def reviews(state: State) -> int:
    """How many reviews there were: every round has one, unless a person came first."""
    return state["round"] - state.get("unreviewed", 0)


def is_over(state: State) -> bool:
    """Whether the loop goes on to its last node, rather than back to the draft."""
    return state["verdict"] == Verdict.APPROVED.value or bool(state["stop_reason"])


@dataclass(frozen=True, slots=True)
class Routes:
    """The nodes that may follow another, and which of them does."""

    nodes: tuple[str, ...]
    choose: Callable[[State], str]


def compose(nodes: Mapping[str, Node], ways: Mapping[str, Routes]) -> "StateGraph[Any, Any, Any, Any]":
    """A line of nodes, with other ways from some of them."""
    from langgraph.graph import END, START, StateGraph

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    names = list(nodes)
    for name, node in nodes.items():
        graph.add_node(name, node)  # type: ignore[call-overload]
    for name, following in zip([START, *names], [*names, END], strict=True):
        if name in ways:
            graph.add_conditional_edges(name, ways[name].choose, list(ways[name].nodes))
        else:
            graph.add_edge(name, following)
    return graph


def _schema() -> str:
    return load_prompt_file("verdict.schema.json")


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
