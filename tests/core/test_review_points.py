"""Numbered points of reviews: open until resolved, and what stops the loop."""

from agentos.core.planning.review_parser import Review, ReviewIssue
from agentos.core.planning.review_points import (
    SAME_ISSUES_AGAIN,
    PointsAfterReview,
    ReviewPoint,
    after_review,
    stuck_reason,
)
from agentos.core.protocol.results import Verdict
from agentos.core.text.answer_text import Revision

TESTS = ReviewIssue("Tests", "major", "No test of the empty case")
SCOPE = ReviewIssue("Scope", "minor", "Too wide")


def revise(*blocking: ReviewIssue, still_open: tuple[int, ...] = ()) -> Review:
    return Review(Verdict.NEEDS_REVISION, "So.", blocking, still_open)


def first() -> PointsAfterReview:
    return after_review((), revise(TESTS, SCOPE), 0)


def test_the_first_review_numbers_its_points() -> None:
    assert [(point.number, point.section) for point in first().points] == [(1, "Tests"), (2, "Scope")]
    assert stuck_reason((), first()) == ""


def test_a_point_keeps_its_number_and_a_new_one_gets_the_next() -> None:
    new = ReviewIssue("Data", "critical", "Loses rows")
    after = after_review(first().points, revise(new, still_open=(2,)), 2)
    assert [(point.number, point.section) for point in after.points] == [(2, "Scope"), (3, "Data")]
    assert after.resolved == (1,) and stuck_reason(first().points, after) == ""


def test_the_loop_stops_when_nothing_was_resolved_whatever_the_words() -> None:
    after = after_review(first().points, revise(still_open=(1, 2)), 2)
    assert stuck_reason(first().points, after) == SAME_ISSUES_AGAIN


def test_new_points_on_top_of_unresolved_ones_are_no_progress() -> None:
    after = after_review(first().points, revise(ReviewIssue("Data", "critical", "x"), still_open=(1, 2)), 2)
    assert stuck_reason(first().points, after) == SAME_ISSUES_AGAIN


def test_an_issue_in_the_words_of_an_earlier_point_is_that_point() -> None:
    louder = ReviewIssue("tests", "critical", "no  TEST of the\nempty case")
    after = after_review(first().points, revise(louder), 2)
    assert [point.number for point in after.points] == [1] and after.resolved == (2,)


def test_a_point_that_stays_open_in_three_reviews_stops_the_loop() -> None:
    second = after_review(first().points, revise(still_open=(1,)), 2)
    new = ReviewIssue("Data", "critical", "Loses rows")
    third = after_review(
        (*second.points, ReviewPoint(3, "Data", "critical", "x")), revise(new, still_open=(1,)), 3
    )
    assert stuck_reason(second.points, second) == ""
    assert stuck_reason(second.points, third) == "point 1 stayed open in 3 reviews in a row"


def test_an_approval_leaves_nothing_open() -> None:
    after = after_review(first().points, Review(Verdict.APPROVED, "Good."), 2)
    assert after == PointsAfterReview((), (1, 2))


def revision() -> Revision:
    kept = "# Title\n\n## Data\n\nRows.\n\n## Scope\n\nWide.\n\n"
    return Revision(f"{kept}## Tests\n\nNone.\n", f"{kept}## Tests\n\n- `test_empty` (R1)\n")


def second(*blocking: ReviewIssue, still_open: tuple[int, ...] = ()) -> PointsAfterReview:
    return after_review(first().points, revise(*blocking, still_open=still_open), 2, revision())


def test_a_late_point_on_an_unchanged_section_is_a_note_and_cannot_block() -> None:
    late = ReviewIssue("Data", "major", "No migration")
    after = second(late)
    assert after.notes == (late,) and after.points == () and after.verdict is Verdict.APPROVED
    both = second(late, still_open=(2,))
    assert [point.number for point in both.points] == [2] and both.notes == (late,)
    assert both.verdict is Verdict.NEEDS_REVISION


def test_a_late_point_blocks_if_it_is_critical_or_about_what_the_revision_changed() -> None:
    for issue in (
        ReviewIssue("Data", "Critical", "Loses rows"),
        ReviewIssue("Tests", "major", "The empty case only"),
        ReviewIssue("Data", "major", "R1 needs a column"),
    ):
        after = second(issue)
        assert [point.number for point in after.points] == [3] and not after.notes, issue


def test_a_note_takes_no_number_from_the_points() -> None:
    after = second(ReviewIssue("Data", "minor", "x"), ReviewIssue("Tests", "major", "y"))
    assert [(point.number, point.section) for point in after.points] == [(3, "Tests")]


def test_in_the_first_review_everything_is_a_point() -> None:
    assert first().notes == () and len(first().points) == 2
