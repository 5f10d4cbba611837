"""Human review: gates that park an item, and the decisions that resume it."""

from dataclasses import dataclass
from enum import StrEnum

from agentos.core.constants import REVIEWS


class Gate(StrEnum):
    """What a person is asked to review."""

    DRAFT = "draft"
    VERDICT = "verdict"


GATES: dict[str, tuple[Gate, ...]] = dict(
    zip(REVIEWS, ((), (Gate.DRAFT,), (Gate.VERDICT,), tuple(Gate)), strict=True)
)
"""The gates of each value of `--review`."""


class ReviewAction(StrEnum):
    APPROVE = "approve"
    SEND_BACK = "send back"
    REJECT = "reject"

    @property
    def past_tense(self) -> str:
        return {"approve": "approved", "send back": "sent back", "reject": "rejected"}[self.value]


@dataclass(frozen=True, slots=True)
class ReviewDecision:
    """A person's decision. `draft` is the draft as edited by the person, if it was."""

    action: ReviewAction
    text: str = ""
    draft: str | None = None


@dataclass(frozen=True, slots=True)
class GateRequest:
    """What a person is asked at one gate. `number` is unique per item, so that no decision applies twice."""

    number: int
    gate: Gate
    round: int
    draft: str
    verdict: str = ""
    approved: bool = False


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
