"""The points of a document's reviews: numbered when they are raised, open until a review calls them resolved.

A later review may raise a new point only if it is critical or about what the revision changed. Anything else is a note,
which blocks nothing: otherwise a reviewer who always finds something new in unchanged text would never finish.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentos.core.planning.review_parser import Review, ReviewIssue
from agentos.core.protocol.results import Verdict
from agentos.core.text.answer_text import Revision

CRITICAL = "critical"
MAX_REVIEWS_OPEN = 3  # reviews in a row that find the same point open
SAME_ISSUES_AGAIN = "two reviews in a row named the same blocking issues"


@dataclass(frozen=True, slots=True)
class ReviewPoint:
    """A blocking issue with its number, and how many reviews have found it open."""

    number: int
    section: str
    severity: str
    description: str
    reviews_open: int = 1

    @property
    def issue(self) -> ReviewIssue:
        return ReviewIssue(self.section, self.severity, self.description)

    def __str__(self) -> str:
        return f"- **Point {self.number}, {self.section}** ({self.severity}): {self.description}"


@dataclass(frozen=True, slots=True)
class PointsAfterReview:
    """The points open after a review, the numbers of those it called resolved, and notes, which block nothing."""

    points: tuple[ReviewPoint, ...]
    resolved: tuple[int, ...]
    notes: tuple[ReviewIssue, ...] = ()

    @property
    def verdict(self) -> Verdict:
        return Verdict.NEEDS_REVISION if self.points else Verdict.APPROVED


def after_review(
    earlier: Sequence[ReviewPoint], review: Review, last_number: int, revision: Revision | None = None
) -> PointsAfterReview:
    """Return the points that are open now. An issue that says the same as an earlier point counts as that point.

    `last_number` is the highest number given so far. `revision` is what changed since the last review; without it, as in
    the first review, every issue becomes a point.
    """
    if review.verdict is Verdict.APPROVED:
        return PointsAfterReview((), tuple(point.number for point in earlier))
    repeated = {issue.fingerprint for issue in review.blocking}
    kept = [
        replace(point, reviews_open=point.reviews_open + 1)
        for point in earlier
        if point.number in review.still_open or point.issue.fingerprint in repeated
    ]
    known = {point.issue.fingerprint for point in earlier}
    new = {issue.fingerprint: issue for issue in review.blocking if issue.fingerprint not in known}
    notes = tuple(issue for issue in new.values() if revision and not _may_block(issue, revision))
    raised = [
        ReviewPoint(number, issue.section, issue.severity, issue.description)
        for number, issue in enumerate((each for each in new.values() if each not in notes), last_number + 1)
    ]
    open_numbers = {point.number for point in kept}
    resolved = tuple(point.number for point in earlier if point.number not in open_numbers)
    return PointsAfterReview((*kept, *raised), resolved, notes)


def _may_block(issue: ReviewIssue, revision: Revision) -> bool:
    return issue.severity.casefold() == CRITICAL or revision.concerns(issue.section, issue.description)


def stuck_reason(earlier: Sequence[ReviewPoint], after: PointsAfterReview) -> str:
    """Why another revision would not help; empty if it may."""
    if earlier and not after.resolved:
        return SAME_ISSUES_AGAIN
    stuck = [str(point.number) for point in after.points if point.reviews_open >= MAX_REVIEWS_OPEN]
    if stuck:
        noun = "points" if len(stuck) > 1 else "point"
        return f"{noun} {', '.join(stuck)} stayed open in {MAX_REVIEWS_OPEN} reviews in a row"
    return ""
