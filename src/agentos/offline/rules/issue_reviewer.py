"""Reviews an issue by a table of rules."""

import re
from collections.abc import Iterable

from agentos.offline.rules.facts import gather_facts, is_testable
from agentos.offline.rules.markdown import read_document
from agentos.offline.rules.prompt import Prompt
from agentos.offline.rules.verdict import Gap, Rule, Severity, Subject, as_json, judge

SECTIONS = ("Problem", "Requirements", "Acceptance criteria")
LABELLED = re.compile(r"^\W*(R\d+)\b\W*(.*)$")


def review_issue(prompt: Prompt) -> str:
    return as_json(judge(RULES, Subject(gather_facts(prompt.source), read_document(prompt.draft))))


def _brief_has_no_test(subject: Subject) -> Iterable[str]:
    if not subject.facts.testable:
        yield f"The brief asks for nothing that somebody could check; it needs one wish {Gap.SOURCE}."


def _missing_sections(subject: Subject) -> Iterable[str]:
    missing = (name for name in SECTIONS if not _body(subject, name))
    return (f"The section {name} {Gap.SECTION}." for name in missing)


def _no_labels(subject: Subject) -> Iterable[str]:
    if not _body(subject, "Labels"):
        yield f"No {Gap.LABELS} is given: name one to four."


def _vague_requirements(subject: Subject) -> Iterable[str]:
    vague = (label for label, text in _labelled(subject, "Requirements").items() if not is_testable(text))
    return (
        f"{label} {Gap.VAGUE}: give it a number or a visible outcome, or leave it out." for label in vague
    )


def _unaccepted_requirements(subject: Subject) -> Iterable[str]:
    accepted = _labelled(subject, "Acceptance criteria")
    missing = (label for label in _labelled(subject, "Requirements") if label not in accepted)
    return (f"{label} has no {Gap.ACCEPTANCE}." for label in missing)


RULES = (
    Rule(1, "Requirements", Severity.CRITICAL, _brief_has_no_test),
    Rule(2, "Document", Severity.CRITICAL, _missing_sections),
    Rule(2, "Labels", Severity.MAJOR, _no_labels),
    Rule(3, "Requirements", Severity.MAJOR, _vague_requirements),
    Rule(3, "Acceptance criteria", Severity.MAJOR, _unaccepted_requirements),
)


def _body(subject: Subject, name: str) -> str:
    section = subject.draft.section(name)
    return section.body.strip() if section else ""


def _labelled(subject: Subject, name: str) -> dict[str, str]:
    section = subject.draft.section(name)
    found = (LABELLED.match(item) for item in (section.items if section else ()))
    return {match[1]: match[2] for match in found if match}
