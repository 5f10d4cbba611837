"""Turns, in which the runs of one host give out the keys that they share."""

from collections.abc import Callable
from typing import TypeVar

from agentos.core.leasing import Leasing
from agentos.core.ports import Neighbours

T = TypeVar("T")


def in_turn(leasing: Leasing, neighbours: Neighbours, decide: Callable[[], T]) -> tuple[T, bool]:
    """What the others did is known before the decision, what we do is told within the turn.

    With the decision: whether the others could be told. Out of turn, everything but keys is decided.
    """
    with neighbours.turn() as notes:
        leasing.in_turn = notes is not None
        if notes is not None:
            for note in (*notes, *neighbours.gone(leasing.pool.foreign_runs())):
                leasing.pool.hear(note)
        decision = decide()
        told = neighbours.leave(leasing.take_notes())
    return decision, told
