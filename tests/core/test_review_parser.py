"""Parsing of reviews: anything unclear is never an approval."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentos.core.planning.review_parser import (
    CONTRADICTORY,
    Review,
    ReviewIssue,
    UnreadableReview,
    read_review,
)
from agentos.core.protocol.results import Verdict

BLOCKED = {"section": "Tests", "severity": "major", "description": "No test of the empty case"}
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def review(verdict: object, rationale: object = "Good.", **others: object) -> Review:
    return read_review(json.dumps({"verdict": verdict, "rationale": rationale, **others}))


def test_a_valid_approval_is_an_approval() -> None:
    assert review("APPROVED", blocking_issues=[]) == Review(Verdict.APPROVED, "Good.")


def test_a_revision_keeps_its_reasons() -> None:
    found = review("REVISE", blocking_issues=[BLOCKED])
    assert found.verdict is Verdict.NEEDS_REVISION
    assert found.blocking == (ReviewIssue("Tests", "major", "No test of the empty case"),)


def test_a_revision_without_reasons_blocks_with_its_rationale() -> None:
    assert review("REVISE", "Too vague.").blocking == (ReviewIssue("Review", "critical", "Too vague."),)


def test_an_approval_with_blocking_issues_is_not_an_approval() -> None:
    found = review("APPROVED", blocking_issues=[BLOCKED])
    assert found.verdict is Verdict.NEEDS_REVISION and found.rationale.startswith(CONTRADICTORY)


def test_a_verdict_given_twice_is_unreadable() -> None:
    text = '{"verdict": "REVISE", "verdict": "APPROVED", "rationale": "Good.", "blocking_issues": []}'
    with pytest.raises(UnreadableReview, match="duplicate key"):
        read_review(text)


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
        '```json\n{"verdict": "APPROVED"}\n```',
        "<think>APPROVED, because",
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
def test_a_response_that_violates_the_schema_is_unreadable_and_never_an_approval(text: str) -> None:
    with pytest.raises(UnreadableReview):
        read_review(text, lenient=True)


@pytest.mark.parametrize(
    "wrapped",
    [
        "```json\n{}\n```",
        "\n```\n{}\n```\n",
        "<think>Is it good? `verdict` ...</think>\n{}",
        "<think>\nHm.\n</think>\n\n```json\n{}\n```",
    ],
)
def test_one_code_fence_and_leading_thoughts_are_taken_off(wrapped: str) -> None:
    answer = json.dumps({"verdict": "APPROVED", "rationale": "Good.", "blocking_issues": []})
    assert read_review(wrapped.replace("{}", answer)).verdict is Verdict.APPROVED


@given(st.text() | anything.map(json.dumps))
def test_arbitrary_text_is_never_an_approval(text: str) -> None:
    with contextlib.suppress(UnreadableReview):
        assert read_review(text).verdict is Verdict.NEEDS_REVISION


@given(st.sampled_from(["APPROVED", "REVISE"]), anything, anything)
def test_an_approval_has_a_rationale_and_no_blocking_issues(
    word: str, rationale: object, blocking: object
) -> None:
    try:
        found = review(word, rationale, blocking_issues=blocking)
    except UnreadableReview:
        return
    if found.verdict is Verdict.APPROVED:
        assert word == "APPROVED" and isinstance(rationale, str) and (blocking == [] or blocking is None)


def answered(verdict: str, *statuses: tuple[int, str], lenient: bool = False) -> Review:
    points = [{"point": number, "status": status} for number, status in statuses]
    record = {"verdict": verdict, "rationale": "So.", "earlier_points": points, "blocking_issues": []}
    return read_review(json.dumps(record), (1, 2), lenient=lenient)


def test_an_approval_resolves_every_earlier_point() -> None:
    assert answered("APPROVED", (1, "resolved"), (2, "resolved")).verdict is Verdict.APPROVED


def test_an_approval_that_leaves_a_point_open_is_none() -> None:
    found = answered("APPROVED", (1, "resolved"), (2, "open"))
    assert found.verdict is Verdict.NEEDS_REVISION and found.still_open == (2,)
    assert found.rationale.startswith(CONTRADICTORY)


def test_a_point_that_is_called_both_resolved_and_open_is_open() -> None:
    assert answered("REVISE", (1, "open"), (1, "resolved"), (2, "resolved")).still_open == (1,)


def test_an_earlier_point_without_an_answer_is_asked_for_and_then_open() -> None:
    with pytest.raises(UnreadableReview, match="no answer for point 2"):
        answered("REVISE", (1, "resolved"))
    assert answered("APPROVED", (1, "resolved"), lenient=True).still_open == (2,)


def test_an_answer_for_a_point_that_was_never_raised_is_ignored() -> None:
    assert answered("APPROVED", (1, "resolved"), (2, "resolved"), (9, "open")).verdict is Verdict.APPROVED
