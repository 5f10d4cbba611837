"""Claims: who may work on an item of a fleet, and whose writes count.

The comparison in Postgres (`agentos_check_claim`) makes the same decisions as this module, inside its transactions.
"""

from dataclasses import dataclass
from enum import StrEnum

ClaimNumber = tuple[int, int, int]
"""Submission, turn and attempt. The attempt alone would not be a fence: it starts again with each turn."""
FIRST_ATTEMPT = (1, 1)


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """The claim in an item's row, and the process that made it."""

    claim: ClaimNumber
    by: str


class ClaimResult(StrEnum):
    FIRST = "first"
    REPEATED = "repeated"
    """An earlier attempt of the same submission had the item, and may have died right after finishing it."""
    OUTRANKED = "outranked"


def decide_claim(held: HeldClaim | None, claim: ClaimNumber, by: str) -> ClaimResult:
    """Decide whether the process `by` gets an item whose row contains `held`; without a row, the item is gone.

    A process may find its own claim there: it was written, but the commit was not confirmed.
    """
    if held is None:
        return ClaimResult.OUTRANKED
    if held == HeldClaim(claim, by):
        return ClaimResult.FIRST if claim[1:] == FIRST_ATTEMPT else ClaimResult.REPEATED
    if not outranks(claim, held.claim):
        return ClaimResult.OUTRANKED
    return ClaimResult.REPEATED if held.claim[0] >= claim[0] else ClaimResult.FIRST


def outranks(claim: ClaimNumber, held: ClaimNumber) -> bool:
    """Whether this claim takes the item over from whoever holds it."""
    return claim > held


def may_write(claim: ClaimNumber, held: ClaimNumber) -> bool:
    """Whether a write with this claim counts while the item's row contains `held`."""
    return claim == held
