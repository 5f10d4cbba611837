"""Where a person has the word: gates that park an item, decisions that let it go on."""

from dataclasses import dataclass
from enum import StrEnum

from agentos.core.constants import REVIEWS


class Gate(StrEnum):
    """What a person is asked about."""

    DRAFT = "draft"
    VERDICT = "verdict"


GATES: dict[str, tuple[Gate, ...]] = dict(
    zip(REVIEWS, ((), (Gate.DRAFT,), (Gate.VERDICT,), tuple(Gate)), strict=True)
)
"""What `--review` may say."""


class ReviewAction(StrEnum):
    APPROVE = "approve"
    SEND_BACK = "send back"
    REJECT = "reject"

    @property
    def past_tense(self) -> str:
        """In the past tense."""
        return {"approve": "approved", "send back": "sent back", "reject": "rejected"}[self.value]


@dataclass(frozen=True, slots=True)
class ReviewDecision:
    """What a person decided; `draft` is the text of one that the person has edited."""

    action: ReviewAction
    text: str = ""
    draft: str | None = None


@dataclass(frozen=True, slots=True)
class GateRequest:
    """What a person is asked at one gate: `number` tells gates apart, so that no decision counts twice."""

    number: int
    gate: Gate
    round: int
    draft: str
    verdict: str = ""
    approved: bool = False


@dataclass(frozen=True, slots=True)
class ParkedItem:
    """An item that waits for a person; `run` has parked it."""

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
    """A parking as it stands: the draft as a person has edited it so far, and the decision, once there is one."""

    parked_item: ParkedItem
    edited: str | None = None
    decision: ReviewDecision | None = None
