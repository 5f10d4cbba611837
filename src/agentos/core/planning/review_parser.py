"""What a review said, read so that a doubt is never an approval."""

import json
from dataclasses import dataclass

from agentos.core.protocol.results import Verdict

UNREADABLE = "The review could not be read as a verdict by the schema."
CONTRADICTORY = "The review approved, and named blocking issues."


@dataclass(frozen=True, slots=True)
class Blocking:
    section: str
    severity: str
    description: str


@dataclass(frozen=True, slots=True)
class Review:
    verdict: Verdict
    rationale: str
    blocking: tuple[Blocking, ...] = ()

    @property
    def fingerprint(self) -> list[str]:
        """The same for two reviews that block for the same reasons, in whatever order."""
        return sorted({" ".join(f"{b.section}|{b.description}".casefold().split()) for b in self.blocking})


def read_review(text: str) -> Review:
    """The verdict in a model's answer; anything unreadable is not an approval."""
    try:
        record = json.loads(text, object_pairs_hook=_unique)
        approved = {"APPROVED": True, "REVISE": False}[record["verdict"]]
        rationale = _text(record["rationale"])
        blocking = tuple(_blocking(entry) for entry in _entries(record.get("blocking_issues")))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return _revise(UNREADABLE)
    if approved and blocking:
        return Review(Verdict.NEEDS_REVISION, f"{CONTRADICTORY} {rationale}", blocking)
    if not approved and not blocking:
        return _revise(rationale)
    return Review(Verdict.APPROVED if approved else Verdict.NEEDS_REVISION, rationale, blocking)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object that has a key twice says two things at once, so it says nothing."""
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("a key occurs twice")
    return record


def _revise(reason: str) -> Review:
    return Review(Verdict.NEEDS_REVISION, reason, (Blocking("Review", "critical", reason),))


def _entries(value: object) -> list[dict[str, object]]:
    if value is not None and not isinstance(value, list):
        raise TypeError("expected a list")
    return value or []


def _blocking(entry: dict[str, object]) -> Blocking:
    return Blocking(_text(entry["section"]), _text(entry["severity"]), _text(entry["description"]))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("expected a string")
    return value
