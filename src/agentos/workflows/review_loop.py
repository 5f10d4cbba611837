"""The draft and review loop that both built-in workflows share: load, draft, human gate, review, revise or finish."""

import functools
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from agentos.core.errors import InvalidSpec
from agentos.core.planning.gates import Gate
from agentos.core.planning.review_parser import EARLIER_POINTS, Review, ReviewIssue
from agentos.core.planning.review_points import PointsAfterReview, ReviewPoint, after_review, stuck_reason
from agentos.core.protocol.codec import pack, unpack
from agentos.core.protocol.results import Verdict
from agentos.core.text.answer_text import Revision
from agentos.regular_files import UnsafeFile, read_start
from agentos.workflows.markdown import in_file
from agentos.workflows.material import MAX_CHECKS, CodeState, Material
from agentos.workflows.model_answers import ask_for_draft, ask_for_review
from agentos.workflows.node_context import LineageFile, NodeContext, load_prompt_file

if TYPE_CHECKING:
    from langgraph.graph import StateGraph

__all__ = [
    "LengthRule",
    "ReviewLoop",
    "ReviewMetadata",
    "Routes",
    "State",
    "compose",
    "is_over",
    "read_metadata",
    "reviews",
    "with_metadata",
]
FENCE = "---"
_MAX_METADATA = 65_536  # bytes
DRAFTER, REVIEWER = "drafter", "reviewer"
NOTES_MEANING = (
    "New in a later review, neither critical nor about anything that the revision changed: "
    "noted, without holding up the approval."
)


class State(CodeState, total=False):
    """The graph's state, in JSON types only: documents are files, referenced by path and hash.

    round: number of the current draft, counted from 1; node events report it.
    stage: what a person can decide on next, a draft or a verdict.
    decision_count: decisions that a person has made.
    unreviewed_count: drafts that a person sent back or rejected before the reviewer saw them.
    points: what the reviews found and is still open; last_point: the highest number of a point so far.
    notes: what later reviews found too late to block; reviewed: the draft that the last review saw.
    """

    source: LineageFile
    lineage_count: int
    round: int
    draft: LineageFile
    drafter: str
    verdict: str
    rationale: str
    reviewer: str
    feedback: list[LineageFile]
    points: list[dict[str, Any]]
    last_point: int
    notes: list[dict[str, Any]]
    reviewed: LineageFile
    stop_reason: str
    result: str
    stage: str
    decision_count: int
    unreviewed_count: int
    sent_back: bool


Node = Callable[[State], Awaitable[State]]


@dataclass(frozen=True, slots=True)
class LengthRule:
    """How long a document should be: a number of words per word of its source, within bounds."""

    words_per_word: float
    least: int
    most: int

    def text_for(self, source: str) -> str:
        words = len(source.split())
        target = min(max(round(words * self.words_per_word, -1), self.least), self.most)
        return f"{round(target * 0.75, -1):.0f} to {round(target * 1.25, -1):.0f} words"


DEFAULT_LENGTH = LengthRule(2, 200, 2400)
LENGTHS = {"lld": LengthRule(4, 400, 2400), "issue": LengthRule(2.5, 160, 480)}


class ReviewLoop:
    """The load, draft and review nodes for one item, to be put together with `compose`.

    `kind` selects the prompts, `kind_draft.md` and `kind_review.md`; `source_kind` names the source's file in the lineage;
    `length` says how long a draft should be.
    """

    def __init__(
        self,
        context: NodeContext,
        kind: str,
        source_kind: str,
        material: Material | None = None,
        length: LengthRule | None = None,
    ) -> None:
        self._context = context
        self._kind = kind
        self._source_kind = source_kind
        self._material = material or Material()
        self._length = length or LENGTHS.get(kind, DEFAULT_LENGTH)

    async def load(self, body: str, problems: tuple[str, ...]) -> State:
        item = self._context.item
        if problems or item.problems:
            raise InvalidSpec((*item.problems, *(in_file(item.source, problem) for problem in problems)))
        return {
            "source": self._context.write_lineage(1, self._source_kind, body),
            "lineage_count": 1,
            "round": 0,
            "feedback": [],
        }

    async def draft(self, state: State) -> State:
        """Write a draft; findings of the mechanical check go back to the drafter before the draft is reviewed."""
        context, number = self._context, state["round"] + 1
        source = context.read_lineage(state["source"])
        prepared = await self._material.prepare(state, source)
        texts = {
            "source": source,
            "draft": context.read_lineage(state["draft"]) if "draft" in state else "",
            "feedback": self._feedback(state),
            "length": self._length.text_for(source),
            "check": "",
            **self._material.texts(cast(State, {**state, **prepared}), source),
        }
        call, count, check_round = f"draft-{number}", state["lineage_count"], 0
        found_before: list[str] = []
        while True:
            request = context.model_request(DRAFTER, f"{self._kind}_draft", **texts)
            draft = await ask_for_draft(context, call, request, texts["draft"])
            count += 1
            written = context.write_lineage(count, "draft", draft.text)
            words = len(draft.text.split())
            context.say(f"Draft {number} written ({words} {'word' if words == 1 else 'words'})")
            result = self._material.check(draft.text, source)
            if result is None or not result.findings or check_round == MAX_CHECKS:
                break
            if result.findings == found_before:
                break  # another draft would not help: leave the findings to the reviewer
            found_before = list(result.findings)
            check_round += 1
            count += 1
            context.write_lineage(count, "check", f"# Check of draft {number}\n\n{result.as_text()}\n")
            context.say(f"Check of draft {number}: {_first_findings(result.findings)}")
            texts |= {"draft": draft.text, "check": result.as_text()}
            call = f"draft-{number}-check-{check_round}"
        if result is not None:
            # What cannot be checked is the same for every draft of an item.
            context.say(f"Check of draft {number}: {result.summary if number == 1 else result.outcome}")
        return {
            **cast(State, prepared),
            "draft": written,
            "lineage_count": count,
            "round": number,
            "drafter": draft.model,
            "stage": Gate.DRAFT.value,
            "sent_back": False,
        }

    async def review(self, state: State) -> State:
        context, number = self._context, state["round"]
        earlier = open_points(state)
        name = f"{self._kind}_review"
        source, draft = context.read_lineage(state["source"]), context.read_lineage(state["draft"])
        # A project's own prompt may not show the earlier points, and then gets no answers to them.
        asked = [point.number for point in earlier] if context.uses_variable(name, "verdict") else []
        request = replace(
            context.model_request(
                REVIEWER,
                name,
                source=source,
                draft=draft,
                verdict="\n".join(map(str, earlier)),
                check=self._material.facts(state, draft, source),
                **self._material.texts(state, source),
            ),
            schema=review_schema(with_points=bool(asked)),
        )
        given = await ask_for_review(context, f"review-{number}", request, asked)
        # Nor does such a prompt tell the reviewer that new points come too late.
        revision = (
            Revision(context.read_lineage(state["reviewed"]), draft)
            if asked and "reviewed" in state
            else None
        )
        review = given.review
        after = after_review(earlier, review, state.get("last_point", 0), revision)
        count = state["lineage_count"] + 1
        text = _review_markdown(review, after, number, given.model)
        notes = f", {len(after.notes)} not blocking" if after.notes else ""
        context.say(f"Review {number}: {after.verdict} ({len(after.points)} blocking{notes})")
        return {
            "lineage_count": count,
            "verdict": after.verdict.value,
            "rationale": review.rationale,
            "reviewer": given.model,
            "feedback": [*state["feedback"], context.write_lineage(count, "verdict", text)],
            "points": [pack(point) for point in after.points],
            "last_point": max((point.number for point in after.points), default=state.get("last_point", 0)),
            "notes": [*state.get("notes", []), *map(pack, after.notes)],
            "reviewed": state["draft"],
            "stop_reason": self._stop_reason(after, state),
            "stage": Gate.VERDICT.value,
        }

    def _stop_reason(self, after: PointsAfterReview, state: State) -> str:
        """Why the loop ends without approval; empty if it continues."""
        if after.verdict is Verdict.APPROVED:
            return ""
        if reason := stuck_reason(open_points(state), after):
            return reason
        if reviews(state) >= self._context.max_iterations:
            return f"not approved in {reviews(state)} reviews (--max-iterations)"
        return ""

    def _feedback(self, state: State) -> str:
        """The latest verdict and everything that people wrote, verbatim; one line for each older verdict."""
        files = state["feedback"]
        verdicts = [file for file in files if file["path"].endswith("-verdict.md")]
        texts = [
            f"- {self._context.read_lineage(file).splitlines()[0].lstrip('# ')}"
            if file in verdicts[:-1]
            else self._context.read_lineage(file)
            for file in files
        ]
        return "\n".join(texts)

    def metadata(self, state: State) -> "ReviewMetadata":
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
            code_commit=state.get("code_commit", ""),
        )

    def approved_document(self, state: State) -> str:
        """The approved draft, with the notes that came too late to block it."""
        draft = self._context.read_lineage(state["draft"])
        notes = dict.fromkeys(str(unpack(ReviewIssue, note)) for note in state.get("notes", []))
        if not notes:
            return draft
        listed = "\n".join(notes)
        return f"{draft.rstrip()}\n\n## Review notes\n\n{NOTES_MEANING}\n\n{listed}\n"

    def reasons(self, state: State) -> str:
        """The section that explains why a document was not approved."""
        feedback = self._context.read_lineage(state["feedback"][-1])
        return f"## Why it was not approved\n\nStopped: {state['stop_reason']}.\n\n{feedback}"


def reviews(state: State) -> int:
    """The number of reviews so far: one per round, except for rounds that a person decided first."""
    return state["round"] - state.get("unreviewed_count", 0)


def is_over(state: State) -> bool:
    """Whether the loop is finished, rather than going back to the draft."""
    return state["verdict"] == Verdict.APPROVED.value or bool(state["stop_reason"])


@dataclass(frozen=True, slots=True)
class Routes:
    """The nodes that can follow a node, and the function that chooses one of them."""

    nodes: tuple[str, ...]
    choose: Callable[[State], str]


@dataclass(frozen=True, slots=True)
class _LeafNode:
    """A node without subgraphs.

    An object rather than a function, because LangGraph searches the code of functions for subgraphs, which takes longer
    than everything else in building a graph.
    """

    run: Node

    async def __call__(self, state: State) -> State:
        return await self.run(state)


@dataclass(frozen=True, slots=True)
class _Route:
    """A route as an object without the state in its annotations, because LangGraph would evaluate all of its fields.

    It is async, because LangGraph would start a thread for one that is not.
    """

    choose: Callable[[State], str]

    async def __call__(self, state: Any) -> str:
        return self.choose(state)


def compose(nodes: Mapping[str, Node], routes: Mapping[str, Routes]) -> "StateGraph[Any, Any, Any, Any]":
    """A graph that runs the nodes in order, branching at those that have routes."""
    from langgraph.graph import END, START, StateGraph

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    names = list(nodes)
    for name, node in nodes.items():
        # With the schema given, LangGraph does not evaluate the state's annotations again for each node.
        graph.add_node(name, cast(Any, _LeafNode(node)), input_schema=State)
    for name, successor in zip([START, *names], [*names, END], strict=True):
        if name in routes:
            graph.add_conditional_edges(name, _Route(routes[name].choose), list(routes[name].nodes))
        else:
            graph.add_edge(name, successor)
    return graph


def open_points(state: State) -> list[ReviewPoint]:
    """The points that the last review left open."""
    return [unpack(ReviewPoint, point) for point in state.get("points", [])]


@functools.cache
def review_schema(*, with_points: bool) -> str:
    """The schema of a review. Without earlier points there is no field for them: a weak model would invent some.

    There are only two, because providers cache a prompt together with its schema.
    """
    text = load_prompt_file("verdict.schema.json")
    if with_points:
        return text
    schema = json.loads(text)
    del schema["properties"][EARLIER_POINTS]
    schema["required"].remove(EARLIER_POINTS)
    return json.dumps(schema)


def _first_findings(findings: Sequence[str]) -> str:
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return f"back to the drafter: {findings[0]}{more}"


def _review_markdown(review: Review, after: PointsAfterReview, number: int, model: str) -> str:
    numbers = ", ".join(str(point.number) for point in after.points)
    title = f"# Review {number}: {after.verdict}" + (f" (open: {numbers})" if numbers else "")
    resolved = f"Resolved: {', '.join(map(str, after.resolved))}" if after.resolved else ""
    parts = [title, f"Reviewer: {model}", review.rationale, resolved, "\n".join(map(str, after.points))]
    if after.notes:
        parts += [f"Not blocking. {NOTES_MEANING}", "\n".join(map(str, after.notes))]
    return "\n\n".join(part for part in parts if part).rstrip() + "\n"


@dataclass(frozen=True, slots=True)
class ReviewMetadata:
    """Who drafted and reviewed a document, with what verdict, and from which version of its source."""

    item: str
    status: Verdict
    rounds: int
    drafter: str
    reviewer: str
    date: str
    source: str
    source_sha256: str
    code_commit: str = ""
    """The commit whose code the drafter saw; empty if none was shown."""


_FIELD_NAMES = tuple(field.name for field in fields(ReviewMetadata))


def with_metadata(metadata: ReviewMetadata, body: str) -> str:
    """The document with the metadata as front matter. Each value is JSON and therefore also valid YAML."""
    shown = (name for name in _FIELD_NAMES if name != "code_commit" or metadata.code_commit)
    lines = [f"{name}: {json.dumps(getattr(metadata, name), ensure_ascii=False)}" for name in shown]
    return "\n".join([FENCE, *lines, FENCE, "", body.strip("\n"), ""])


def read_metadata(path: Path, root: Path | None = None) -> ReviewMetadata | None:
    """The metadata of a document that agentos wrote; None for any other file. `root` is the project."""
    found: dict[str, object] = {}
    try:
        # The cut may split a character; the metadata is at the start.
        first, *lines = read_start(path, root, _MAX_METADATA).decode("utf-8", "replace").split("\n")
        if first != FENCE:
            return None
        for line in lines[: len(_FIELD_NAMES) + 1]:
            if line == FENCE:
                break
            name, _, value = line.partition(": ")
            found[name] = json.loads(value)
        return ReviewMetadata(**{**found, "status": Verdict(found["status"])})  # type: ignore[arg-type]
    except (OSError, UnsafeFile, ValueError, KeyError, TypeError, RecursionError):
        return None
