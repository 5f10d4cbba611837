"""Decides, without Temporal, how a turn of an item ended and what the item's workflow does next.

A turn is one activity. When machines die, Temporal makes several attempts at it, each on another machine.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from agentos.core.backoff import Jitter, backoff
from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome

FINISHED, RETRY, DRAINED, PARKED = "finished", "retry", "drained", "parked"


@dataclass(frozen=True)
class Turn:
    """The input of the activity. `tries` turns have failed before this one."""

    project: str
    item: str
    submission: int
    turn: int
    tries: int
    retries: int


@dataclass(frozen=True)
class TurnResult:
    """How a turn ended: FINISHED (or failed for good), RETRY after `seconds`, DRAINED, or PARKED for a person."""

    kind: str
    seconds: float = 0.0


class NextStep(StrEnum):
    """What an item's workflow does after a turn."""

    RUN = "run"
    SLEEP = "sleep"
    AWAIT_DECISION = "await decision"
    END = "end"


class ItemTurns:
    """Counts an item's turns and failed tries. A drained turn is not a failed try; a parked item starts with new tries."""

    def __init__(self) -> None:
        self.turn = self.tries = 0

    def begin(self) -> None:
        self.turn += 1

    def after(self, result: TurnResult) -> NextStep:
        if result.kind == RETRY:
            self.tries += 1
            return NextStep.SLEEP
        if result.kind == PARKED:
            self.tries = 0
            return NextStep.AWAIT_DECISION
        return NextStep.RUN if result.kind == DRAINED else NextStep.END


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """How a turn is recorded: the result for Temporal, and the item's state, outcome and event for Postgres."""

    result: TurnResult
    state: str
    outcome: Outcome | None
    event: events.Event


def turn_end(turn: Turn, event: events.ItemEnded, *, is_draining: bool, jitter: Jitter) -> TurnEnd | None:
    """None if the turn was outranked: another attempt is running, and the result of this one is ignored."""
    outcome = event.outcome
    match outcome:
        case Outcome(ending=Ending.HELD_BY_OTHER_RUN):
            return None
        case Outcome(ending=Ending.INTERRUPTED) if is_draining:
            suspended = events.ItemSuspended(turn.item, event.node)
            return TurnEnd(TurnResult(DRAINED), "submitted", None, suspended)
        case Outcome(ending=Ending.FAILED, retryable=True) if turn.tries < turn.retries:
            seconds = backoff(turn.tries + 1, jitter)
            tries, most = turn.tries + 2, turn.retries + 1
            retried = events.ItemRetried(turn.item, outcome.error or "", tries, most, seconds)
            return TurnEnd(TurnResult(RETRY, seconds), "submitted", None, retried)
    shown = replace(event, item=turn.item)
    if outcome.ending is Ending.PARKED:
        return TurnEnd(TurnResult(PARKED), "parked", outcome, shown)
    return TurnEnd(TurnResult(FINISHED), "ended", outcome, shown)
