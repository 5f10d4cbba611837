"""The reviewer's verdict as the schema wants it."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from agentos.offline.rules.facts import Facts
from agentos.offline.rules.markdown import MarkdownDocument


class Severity(StrEnum):
    CRITICAL = "critical"
    MAJOR = "major"
    MINOR = "minor"


class Gap(StrEnum):
    """What a reviewer calls a gap; a writer knows the reviewer's own words by them."""

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
    """What is reviewed: the draft, against the facts of its source."""

    facts: Facts
    draft: MarkdownDocument


@dataclass(frozen=True, slots=True)
class Rule:
    """`check` names each breach; rules of a later stage are silent until the earlier ones are kept."""

    stage: int
    section: str
    severity: Severity
    check: Callable[[Subject], Iterable[str]]


@dataclass(frozen=True, slots=True)
class BlockingIssue:
    section: str
    severity: Severity
    description: str


def judge(rules: Sequence[Rule], subject: Subject) -> tuple[BlockingIssue, ...]:
    """The breaches of the first stage that has any."""
    for stage in sorted({rule.stage for rule in rules}):
        found = tuple(issue for rule in rules if rule.stage == stage for issue in _breaches(rule, subject))
        if found:
            return found
    return ()


def as_json(issues: Sequence[BlockingIssue]) -> str:
    verdict = "REVISE" if issues else "APPROVED"
    blocking = [
        {
            "section": issue.section,
            "severity": issue.severity.value,
            "description": issue.description,
        }
        for issue in issues
    ]
    found = {
        "verdict": verdict,
        "rationale": _rationale(issues),
        "blocking_issues": blocking,
    }
    return json.dumps(found, indent=2)


def _breaches(rule: Rule, subject: Subject) -> Iterable[BlockingIssue]:
    return (BlockingIssue(rule.section, rule.severity, text) for text in rule.check(subject))


def _rationale(issues: Sequence[BlockingIssue]) -> str:
    if not issues:
        return "Checked by the rules of offline-rules-1: every rule is kept."
    places = ", ".join(dict.fromkeys(issue.section for issue in issues))
    return f"Checked by the rules of offline-rules-1; to repair: {places}."
