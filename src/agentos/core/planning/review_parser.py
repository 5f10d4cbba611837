"""Parses a reviewing model's answer. An answer that cannot be parsed is never an approval."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from agentos.core.protocol.results import Verdict
from agentos.core.text.answer_text import unwrap

CONTRADICTORY = "The review approved but left points open."
APPROVED, REVISE = "APPROVED", "REVISE"
RESOLVED = "resolved"
EARLIER_POINTS = "earlier_points"
MAX_EXCERPT = 80  # characters of an answer in a message


class UnreadableReview(ValueError):
    """The answer is not a valid review; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class ReviewIssue:
    """A problem that has to be fixed before the document can be approved."""

    section: str
    severity: str
    description: str

    @property
    def fingerprint(self) -> str:
        """Equal for two issues that say the same thing about the same section."""
        return " ".join(f"{self.section}|{self.description}".casefold().split())

    def __str__(self) -> str:
        return f"- **{self.section}** ({self.severity}): {self.description}"


@dataclass(frozen=True, slots=True)
class Review:
    """A verdict with its rationale, its new blocking issues, and the numbers of earlier points that stay open."""

    verdict: Verdict
    rationale: str
    blocking: tuple[ReviewIssue, ...] = ()
    still_open: tuple[int, ...] = ()


def read_review(text: str, earlier: Sequence[int] = (), *, lenient: bool = False) -> Review:
    """Parse an answer that has to say for each `earlier` point whether it is resolved or open.

    Raises UnreadableReview. With `lenient`, an earlier point without an answer counts as open. An approval that leaves
    something open counts as a request for revision.
    """
    record = _json_object(unwrap(text))
    try:
        verdict = _text(record["verdict"], "verdict")
        rationale = _text(record["rationale"], "rationale")
        blocking = tuple(_issue(entry) for entry in _entries(record, "blocking_issues"))
        answers = [_answer(entry) for entry in _entries(record, EARLIER_POINTS)]
    except KeyError as error:
        raise UnreadableReview(f"the field {error.args[0]} is missing") from error
    except TypeError as error:
        raise UnreadableReview(str(error)) from error
    if verdict not in (APPROVED, REVISE):
        raise UnreadableReview(f"verdict is {_excerpt(verdict)}, expected {APPROVED} or {REVISE}")
    answered = {number for number, _ in answers}
    silent = [number for number in earlier if number not in answered]
    if silent and not lenient:
        raise UnreadableReview(f"{EARLIER_POINTS} has no answer for point {silent[0]}: resolved or open?")
    left_open = {number for number, status in answers if status != RESOLVED} | set(silent)
    still_open = tuple(number for number in earlier if number in left_open)
    return _judged(verdict == APPROVED, rationale, blocking, still_open)


def _judged(
    approved: bool, rationale: str, blocking: tuple[ReviewIssue, ...], still_open: tuple[int, ...]
) -> Review:
    if approved and not blocking and not still_open:
        return Review(Verdict.APPROVED, rationale)
    if not blocking and not still_open:
        blocking = (ReviewIssue("Review", "critical", rationale),)
    reason = f"{CONTRADICTORY} {rationale}" if approved else rationale
    return Review(Verdict.NEEDS_REVISION, reason, blocking, still_open)


def _json_object(text: str) -> dict[str, object]:
    try:
        record = json.loads(text, object_pairs_hook=_without_duplicates)
    except RecursionError as error:
        raise UnreadableReview("it is nested too deeply") from error
    except ValueError as error:
        raise UnreadableReview(f"it is not JSON ({error}): it begins with {_excerpt(text)}") from error
    if not isinstance(record, dict):
        raise UnreadableReview(f"it is not a JSON object: it begins with {_excerpt(text)}")
    return record


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Reject an object with a duplicate key: two verdicts in one answer are contradictory."""
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("duplicate key")
    return record


def _entries(record: dict[str, object], name: str) -> list[dict[str, object]]:
    value = record.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise TypeError(f"{name} is not a list of objects")
    return value


def _issue(entry: dict[str, object]) -> ReviewIssue:
    return ReviewIssue(*(_text(entry[name], name) for name in ("section", "severity", "description")))


def _answer(entry: dict[str, object]) -> tuple[int, str]:
    number = entry.get("point")
    if type(number) is not int:
        raise TypeError("point is not a number")
    return number, _text(entry.get("status"), "status")


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is not text")
    return value


def _excerpt(text: str) -> str:
    return repr(" ".join(text[: 2 * MAX_EXCERPT].split())[:MAX_EXCERPT])
