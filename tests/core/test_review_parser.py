"""Parsing of reviews: anything unclear is never an approval."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentos.core.planning.review_parser import CONTRADICTORY, UNREADABLE, Review, ReviewIssue, read_review
from agentos.core.protocol.results import Verdict

BLOCKED = {"section": "Tests", "severity": "major", "description": "No test of the empty case"}
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def review(verdict: object, rationale: object = "Good.", **others: object) -> Review:
    return read_review(json.dumps({"verdict": verdict, "rationale": rationale, **others}))


def test_an_approval_by_the_schema_is_an_approval() -> None:
    assert review("APPROVED", blocking_issues=[]) == Review(Verdict.APPROVED, "Good.")


def test_a_revision_keeps_its_reasons() -> None:
    found = review("REVISE", blocking_issues=[BLOCKED])
    assert found.verdict is Verdict.NEEDS_REVISION
    assert found.blocking == (ReviewIssue("Tests", "major", "No test of the empty case"),)


def test_a_revision_without_reasons_blocks_with_its_rationale() -> None:
    assert review("REVISE", "Too vague.").blocking == (ReviewIssue("Review", "critical", "Too vague."),)


def test_an_approval_with_blocking_issues_contradicts_itself_and_is_none() -> None:
    found = review("APPROVED", blocking_issues=[BLOCKED])
    assert found.verdict is Verdict.NEEDS_REVISION and found.rationale.startswith(CONTRADICTORY)


def test_a_verdict_given_twice_is_unreadable() -> None:
    text = '{"verdict": "REVISE", "verdict": "APPROVED", "rationale": "Good.", "blocking_issues": []}'
    found = read_review(text)
    assert found.verdict is Verdict.NEEDS_REVISION and found.rationale == UNREADABLE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "APPROVED",
        '"APPROVED"',
        "null",
        "[]",
        "{}",
        "<html>APPROVED</html>",
        '```json\n{"verdict": "APPROVED", "rationale": "", "blocking_issues": []}\n```',
        '{"verdict": "APPROVED", "rationale": "ok"',
        '{"verdict": "approved", "rationale": "ok"}',
        '{"verdict": true, "rationale": "ok"}',
        '{"verdict": ["APPROVED"], "rationale": "ok"}',
        '{"verdict": "APPROVED"}',
        '{"verdict": "APPROVED", "rationale": 3}',
        '{"verdict": "APPROVED", "rationale": "ok", "blocking_issues": ["none"]}',
        '{"verdict": "APPROVED", "rationale": "ok", "blocking_issues": "none"}',
        '{"verdict": "APPROVED", "rationale": "ok", "blocking_issues": {}}',
        '{"verdict": "APPROVED", "rationale": "ok", "blocking_issues": false}',
        '{"verdict": "APPROVED", "rationale": "ok", "blocking_issues": [{"section": "A"}]}',
        "[" * 100_000,
    ],
)
def test_what_is_not_by_the_schema_is_unreadable_and_never_an_approval(text: str) -> None:
    found = read_review(text)
    assert found.verdict is Verdict.NEEDS_REVISION and found.rationale == UNREADABLE


@given(st.text() | anything.map(json.dumps))
def test_no_text_whatever_is_an_approval_or_an_error(text: str) -> None:
    assert read_review(text).verdict is Verdict.NEEDS_REVISION


@given(st.sampled_from(["APPROVED", "REVISE"]), anything, anything)
def test_an_approval_has_a_rationale_and_no_blocking_issues(
    word: str, rationale: object, blocking: object
) -> None:
    found = review(word, rationale, blocking_issues=blocking)
    if found.verdict is Verdict.APPROVED:
        assert word == "APPROVED" and isinstance(rationale, str) and (blocking == [] or blocking is None)


def test_two_reviews_with_the_same_reasons_have_one_fingerprint() -> None:
    other = {"section": "Scope", "severity": "minor", "description": "Too wide"}
    louder = {**BLOCKED, "severity": "critical", "description": "no  TEST of the\nempty case"}
    first = review("REVISE", blocking_issues=[BLOCKED, other])
    second = review("REVISE", "Again.", blocking_issues=[other, louder, other])
    assert first.fingerprint == second.fingerprint
    assert review("REVISE", blocking_issues=[other]).fingerprint != first.fingerprint
