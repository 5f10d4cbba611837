"""Where a person has the word: gates that park an item, decisions that let it go on."""

from dataclasses import dataclass
from enum import StrEnum

from agentos.core.bounds import REVIEWS


class Gate(StrEnum):
    """What a person is asked about."""

    DRAFT = "draft"
    VERDICT = "verdict"


GATES: dict[str, tuple[Gate, ...]] = dict(
    zip(REVIEWS, ((), (Gate.DRAFT,), (Gate.VERDICT,), tuple(Gate)), strict=True)
)
"""What `--review` may say."""


class Act(StrEnum):
    APPROVE = "approve"
    SEND_BACK = "send back"
    REJECT = "reject"

    @property
    def done(self) -> str:
        """In the past tense."""
        return {"approve": "approved", "send back": "sent back", "reject": "rejected"}[self.value]


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person decided; `draft` is the text of one that the person has edited."""

    act: Act
    text: str = ""
    draft: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person is asked at one gate: `number` tells gates apart, so that no decision counts twice."""

    number: int
    gate: Gate
    round: int
    draft: str
    verdict: str = ""
    approved: bool = False


@dataclass(frozen=True, slots=True)
class Parking:
    """An item that waits for a person; `run` has parked it."""

    item: str
    workflow: str
    title: str
    node: str
    lineage: str
    run: str
    at: float
    asked: Asked


@dataclass(frozen=True, slots=True)
class Parked:
    """A parking as it stands: the draft as a person has edited it so far, and the decision, once there is one."""

    parking: Parking
    edited: str | None = None
    decision: Decision | None = None
