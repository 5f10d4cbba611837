"""What a turn comes to, and what its item's workflow does next."""

import pytest

from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome, Usage, Verdict, failed, failed_transient
from agentos.fleet.turns import (
    DRAINED,
    FINISHED,
    PARKED,
    RETRY,
    ItemTurns,
    NextStep,
    Turn,
    TurnEnd,
    TurnResult,
    turn_end,
)

STEPS = [
    (RETRY, NextStep.SLEEP, 1),
    (DRAINED, NextStep.RUN, 0),
    (PARKED, NextStep.AWAIT_DECISION, 0),
    (FINISHED, NextStep.END, 0),
]


@pytest.mark.parametrize(("kind", "step", "tries"), STEPS)
def test_only_a_retry_counts_as_a_failed_try(kind: str, step: NextStep, tries: int) -> None:
    turns = ItemTurns()
    turns.begin()
    assert (turns.after(TurnResult(kind)), turns.tries) == (step, tries)


def test_a_persons_decision_gives_the_item_all_its_tries_again() -> None:
    turns = ItemTurns()
    for kind in (RETRY, DRAINED, RETRY, PARKED, DRAINED):
        turns.begin()
        turns.after(TurnResult(kind))
    assert (turns.turn, turns.tries) == (5, 0)


@pytest.mark.parametrize(
    ("outcome", "is_draining", "kind", "state"),
    [
        (Outcome(Ending.FINISHED, Verdict.APPROVED), False, FINISHED, "ended"),
        (Outcome(Ending.FINISHED, Verdict.APPROVED), True, FINISHED, "ended"),
        (Outcome(Ending.PARKED), False, PARKED, "parked"),
        (Outcome(Ending.INTERRUPTED), True, DRAINED, "submitted"),
        (Outcome(Ending.INTERRUPTED), False, FINISHED, "ended"),
        (failed_transient("no route"), False, RETRY, "submitted"),
        (failed_transient("no route"), True, RETRY, "submitted"),
        (failed("no title"), False, FINISHED, "ended"),
    ],
)
def test_an_outcome_decides_what_is_recorded(
    outcome: Outcome, is_draining: bool, kind: str, state: str
) -> None:
    found = _turn_end(outcome, tries=0, is_draining=is_draining)
    assert found and (found.result.kind, found.state) == (kind, state)
    assert found.outcome == (None if state == "submitted" else outcome)


def test_the_last_transient_failure_ends_the_item() -> None:
    last = _turn_end(failed_transient("no route"), tries=2)
    assert last and (last.result.kind, last.state) == (FINISHED, "ended")


def test_an_outranked_turn_says_nothing() -> None:
    assert _turn_end(Outcome(Ending.HELD_BY_OTHER_RUN), tries=0) is None


def _turn_end(outcome: Outcome, tries: int, *, is_draining: bool = False) -> TurnEnd | None:
    turn = Turn("shop", "LLD-1", 1, 1, tries, 2)
    event = events.ItemEnded("shop.LLD-1", outcome, 1.0, Usage(), 1)
    return turn_end(turn, event, is_draining=is_draining, jitter=lambda: 0.5)
