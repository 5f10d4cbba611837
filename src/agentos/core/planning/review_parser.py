"""Parses a reviewing model's answer. Anything unclear counts as "needs revision", never as an approval."""

import json
from dataclasses import dataclass

from agentos.core.protocol.results import Verdict

UNREADABLE = "The review does not match the verdict schema."
CONTRADICTORY = "The review approved but listed blocking issues."


@dataclass(frozen=True, slots=True)
class ReviewIssue:
    """A problem that has to be fixed before the document can be approved."""

    section: str
    severity: str
    description: str


@dataclass(frozen=True, slots=True)
class Review:
    """A verdict with its rationale and its blocking issues."""

    verdict: Verdict
    rationale: str
    blocking: tuple[ReviewIssue, ...] = ()

    @property
    def fingerprint(self) -> list[str]:
        """Equal for two reviews with the same blocking issues, in any order."""
        return sorted(
            {" ".join(f"{issue.section}|{issue.description}".casefold().split()) for issue in self.blocking}
        )


def read_review(text: str) -> Review:
    """Parse a model's answer; an unreadable or contradictory one needs revision."""
    try:
        record = json.loads(text, object_pairs_hook=_without_duplicates)
        approved = {"APPROVED": True, "REVISE": False}[record["verdict"]]
        rationale = _text(record["rationale"])
        blocking = tuple(_blocking(entry) for entry in _entries(record.get("blocking_issues")))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return _needs_revision(UNREADABLE)
    if approved and blocking:
        return Review(Verdict.NEEDS_REVISION, f"{CONTRADICTORY} {rationale}", blocking)
    if not approved and not blocking:
        return _needs_revision(rationale)
    return Review(Verdict.APPROVED if approved else Verdict.NEEDS_REVISION, rationale, blocking)


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Reject an object with a duplicate key: two verdicts in one answer are contradictory."""
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("duplicate key")
    return record


def _needs_revision(reason: str) -> Review:
    return Review(Verdict.NEEDS_REVISION, reason, (ReviewIssue("Review", "critical", reason),))


def _entries(value: object) -> list[dict[str, object]]:
    if value is not None and not isinstance(value, list):
        raise TypeError("expected a list")
    return value or []


def _blocking(entry: dict[str, object]) -> ReviewIssue:
    return ReviewIssue(_text(entry["section"]), _text(entry["severity"]), _text(entry["description"]))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("expected a string")
    return value
