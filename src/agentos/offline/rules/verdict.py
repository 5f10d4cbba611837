"""Review rules, and the verdict in the form that the schema requires."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from agentos.offline.rules.facts import SourceFacts
from agentos.offline.rules.markdown import MarkdownDocument

EARLIER_POINT = re.compile(r"^- \*\*Point (\d+), (.+?)\*\* \(\w+\): (.*)$", re.MULTILINE)


class Severity(StrEnum):
    CRITICAL = "critical"
    MAJOR = "major"
    MINOR = "minor"


class Gap(StrEnum):
    """Phrases of the reviewer by which the writer recognises what to add."""

    FAILURES = "failure mode"
    TESTS = "named test"
    QUESTIONS = "open question"
    VAGUE = "cannot be tested"
    ACCEPTANCE = "acceptance criterion"
    LABELS = "label"
    SECTION = "is missing or empty"
    SOURCE = "with a visible outcome"
    UNLISTED = "requirements that can be tested"
    UNDESIGNED = "not covered by any step"


@dataclass(frozen=True, slots=True)
class Subject:
    """A draft to review against the facts of its source."""

    facts: SourceFacts
    draft: MarkdownDocument


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a review. `check` describes each breach; a stage is checked only if the earlier ones have none."""

    stage: int
    section: str
    severity: Severity
    check: Callable[[Subject], Iterable[str]]


@dataclass(frozen=True, slots=True)
class BlockingIssue:
    section: str
    severity: Severity
    description: str


def find_breaches(rules: Sequence[Rule], subject: Subject) -> tuple[BlockingIssue, ...]:
    """The breaches of the first stage that has any."""
    for stage in sorted({rule.stage for rule in rules}):
        breaches = tuple(
            BlockingIssue(rule.section, rule.severity, text)
            for rule in rules
            if rule.stage == stage
            for text in rule.check(subject)
        )
        if breaches:
            return breaches
    return ()


def as_json(issues: Sequence[BlockingIssue], earlier: str = "") -> str:
    """The verdict. `earlier` lists the open points of earlier reviews; one is open as long as its rule is broken."""
    broken = {(issue.section, issue.description) for issue in issues}
    points = {int(found[1]): (found[2], found[3]) for found in EARLIER_POINT.finditer(earlier)}
    blocking = [
        {
            "section": issue.section,
            "severity": issue.severity.value,
            "description": issue.description,
        }
        for issue in issues
        if (issue.section, issue.description) not in points.values()
    ]
    found = {
        "verdict": "REVISE" if issues else "APPROVED",
        "rationale": _rationale(issues),
        "earlier_points": [
            {"point": number, "status": "open" if point in broken else "resolved"}
            for number, point in points.items()
        ],
        "blocking_issues": blocking,
    }
    return json.dumps(found, indent=2)


def _rationale(issues: Sequence[BlockingIssue]) -> str:
    if not issues:
        return "Checked by the rules of offline-rules-1: no rule is broken."
    places = ", ".join(dict.fromkeys(issue.section for issue in issues))
    return f"Checked by the rules of offline-rules-1; to fix: {places}."
