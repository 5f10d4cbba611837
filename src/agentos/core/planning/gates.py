"""Human review: gates that park an item, and the decisions that resume it."""

from dataclasses import dataclass
from enum import StrEnum

from agentos.core.constants import REVIEWS


class Gate(StrEnum):
    """What a person is asked to review. A QUESTION comes from a graph's own `interrupt()` or breakpoint."""

    DRAFT = "draft"
    VERDICT = "verdict"
    QUESTION = "question"


GATES: dict[str, tuple[Gate, ...]] = dict(
    zip(REVIEWS, ((), (Gate.DRAFT,), (Gate.VERDICT,), (Gate.DRAFT, Gate.VERDICT)), strict=True)
)
"""The gates of each value of `--review`."""


class ReviewAction(StrEnum):
    APPROVE = "approve"
    SEND_BACK = "send back"
    REJECT = "reject"
    ANSWER = "answer"

    @property
    def past_tense(self) -> str:
        return {"send back": "sent back", "reject": "rejected", "answer": "answered"}.get(
            self.value, f"{self.value}d"
        )


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """The answer to one question, as JSON text."""

    question: str
    value: str


@dataclass(frozen=True, slots=True)
class ReviewDecision:
    """A person's decision. `draft` is the draft as edited by the person, if it was."""

    action: ReviewAction
    text: str = ""
    draft: str | None = None
    answers: tuple[QuestionAnswer, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """One `interrupt(value)` of a graph, or a breakpoint (`interrupt_before`, `interrupt_after`).

    `id` is LangGraph's id of the interrupt. `value` and `schema`, the schema of the answer if the graph has one, are
    JSON text. `breakpoint` says where the graph stopped, such as `before publish`, and is empty for an interrupt.
    """

    id: str
    node: str
    value: str = "null"
    schema: str = ""
    breakpoint: str = ""


@dataclass(frozen=True, slots=True)
class GateRequest:
    """What a person is asked at one gate. `number` is unique per item, so that no decision applies twice."""

    number: int
    gate: Gate
    round: int
    draft: str
    verdict: str = ""
    approved: bool = False
    questions: tuple[Question, ...] = ()

    @property
    def is_breakpoint(self) -> bool:
        """Whether there is nothing to answer: the graph only waits to be continued."""
        return bool(self.questions) and all(question.breakpoint for question in self.questions)


@dataclass(frozen=True, slots=True)
class ParkedItem:
    """An item that waits for a person, and the run that parked it."""

    item: str
    workflow: str
    title: str
    node: str
    lineage: str
    run: str
    at: float
    request: GateRequest


@dataclass(frozen=True, slots=True)
class ReviewState:
    """A parked item with the edited draft, if there is one, and the decision, once it is made."""

    parked_item: ParkedItem
    edited: str | None = None
    decision: ReviewDecision | None = None
