"""Who gets an item of a fleet."""

import itertools

import pytest

from agentos.core.planning.claims import (
    ClaimNumber,
    ClaimResult,
    HeldClaim,
    decide_claim,
    may_write,
    outranks,
)

CASES = [
    ((0, 0, 0), "", (7, 1, 1), ClaimResult.FIRST),
    ((6, 3, 9), "other", (7, 1, 1), ClaimResult.FIRST),
    ((7, 1, 1), "other", (7, 1, 2), ClaimResult.REPEATED),
    ((7, 1, 9), "other", (7, 2, 1), ClaimResult.REPEATED),
    ((7, 2, 1), "other", (7, 1, 9), ClaimResult.OUTRANKED),
    ((8, 1, 1), "other", (7, 2, 1), ClaimResult.OUTRANKED),
    ((7, 1, 1), "other", (7, 1, 1), ClaimResult.OUTRANKED),
    ((7, 1, 1), "own", (7, 1, 1), ClaimResult.FIRST),
    ((7, 1, 2), "own", (7, 1, 2), ClaimResult.REPEATED),
]


@pytest.mark.parametrize(("held", "by", "claim", "result"), CASES)
def test_a_claim_gets_the_item_if_it_is_greater_or_its_own(
    held: ClaimNumber, by: str, claim: ClaimNumber, result: ClaimResult
) -> None:
    assert decide_claim(HeldClaim(held, by), claim, "own") is result


def test_an_item_that_is_gone_is_nobodys() -> None:
    assert decide_claim(None, (7, 1, 1), "own") is ClaimResult.OUTRANKED


def test_of_two_claims_exactly_one_outranks_the_other_and_only_the_holder_writes() -> None:
    claims: list[ClaimNumber] = list(itertools.product((1, 2), (1, 2, 10), (1, 2, 10)))
    for one, other in itertools.permutations(claims, 2):
        assert outranks(one, other) is not outranks(other, one)
        assert not may_write(one, other)
    assert all(may_write(claim, claim) and not outranks(claim, claim) for claim in claims)
