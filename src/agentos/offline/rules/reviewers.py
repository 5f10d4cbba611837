"""Reviews designs and issues, each by a table of rules."""

import re
from collections.abc import Iterable, Sequence

from agentos.offline.rules.drafting import UNDESCRIBED, UNNAMED
from agentos.offline.rules.facts import gather_facts, is_testable
from agentos.offline.rules.markdown import Prompt, read_document
from agentos.offline.rules.verdict import Gap, Rule, Severity, Subject, as_json, find_breaches

LLD_SECTIONS = ("Context", "Requirements", "Design", "Interfaces", "Test plan", "Rollout")
ISSUE_SECTIONS = ("Problem", "Requirements", "Acceptance criteria")
LABELLED = re.compile(r"^\W*(R\d+)\b\W*(.*)$")
LABEL = re.compile(r"\bR\d+\b")
ANSWERED = re.compile(r"\b(decided|answer(ed)?|none)\b", re.I)


def review_lld(prompt: Prompt) -> str:
    return _review(LLD_RULES, prompt)


def review_issue(prompt: Prompt) -> str:
    return _review(ISSUE_RULES, prompt)


def _review(rules: Sequence[Rule], prompt: Prompt) -> str:
    subject = Subject(gather_facts(prompt.source), read_document(prompt.draft))
    return as_json(find_breaches(rules, subject), prompt.verdict)


def _untestable_issue(subject: Subject) -> Iterable[str]:
    if not subject.facts.testable:
        yield f"The issue states no testable requirement; it needs one {Gap.SOURCE}."


def _untestable_brief(subject: Subject) -> Iterable[str]:
    if not subject.facts.testable:
        yield f"The brief asks for nothing that can be checked; it needs one request {Gap.SOURCE}."


def _missing_lld_sections(subject: Subject) -> Iterable[str]:
    return _missing_sections(subject, LLD_SECTIONS)


def _missing_issue_sections(subject: Subject) -> Iterable[str]:
    return _missing_sections(subject, ISSUE_SECTIONS)


def _missing_sections(subject: Subject, names: Sequence[str]) -> Iterable[str]:
    missing = (name for name in names if not _body(subject, name))
    return (f"The section {name} {Gap.SECTION}." for name in missing)


def _no_labels(subject: Subject) -> Iterable[str]:
    if not _body(subject, "Labels"):
        yield f"No {Gap.LABELS} is given: name one to four."


def _no_failure_modes(subject: Subject) -> Iterable[str]:
    if UNDESCRIBED in (_body(subject, "Failure modes") or UNDESCRIBED):
        yield f"No {Gap.FAILURES} is described: say what happens when a step fails."


def _unlisted_requirements(subject: Subject) -> Iterable[str]:
    listed, stated = len(_labelled(subject)), len(subject.facts.testable)
    if listed < stated:
        yield f"The issue states {stated} {Gap.UNLISTED}; the design lists {listed}."


def _undesigned_requirements(subject: Subject) -> Iterable[str]:
    covered = set(LABEL.findall(_body(subject, "Design")))
    missing = (label for label in _labelled(subject) if label not in covered)
    return (f"{label} is {Gap.UNDESIGNED} of the design." for label in missing)


def _untested_requirements(subject: Subject) -> Iterable[str]:
    lines = _body(subject, "Test plan").splitlines()
    covered = {label for line in lines if UNNAMED not in line for label in LABEL.findall(line)}
    return (f"{label} has no {Gap.TESTS}." for label in _labelled(subject) if label not in covered)


def _vague_requirements(subject: Subject) -> Iterable[str]:
    vague = (label for label, text in _labelled(subject).items() if not is_testable(text))
    return (
        f"{label} {Gap.VAGUE}: give it a number or a visible outcome, or leave it out." for label in vague
    )


def _unaccepted_requirements(subject: Subject) -> Iterable[str]:
    accepted = _labelled(subject, "Acceptance criteria")
    missing = (label for label in _labelled(subject) if label not in accepted)
    return (f"{label} has no {Gap.ACCEPTANCE}." for label in missing)


def _unanswered_questions(subject: Subject) -> Iterable[str]:
    section = subject.draft.section("Open questions")
    items = section.items if section else ()
    return (f"An {Gap.QUESTIONS} is left unanswered: {text}" for text in items if not ANSWERED.search(text))


LLD_RULES = (
    Rule(1, "Requirements", Severity.CRITICAL, _untestable_issue),
    Rule(2, "Document", Severity.CRITICAL, _missing_lld_sections),
    Rule(2, "Failure modes", Severity.MAJOR, _no_failure_modes),
    Rule(3, "Requirements", Severity.CRITICAL, _unlisted_requirements),
    Rule(3, "Requirements", Severity.MAJOR, _vague_requirements),
    Rule(3, "Design", Severity.MAJOR, _undesigned_requirements),
    Rule(3, "Open questions", Severity.MAJOR, _unanswered_questions),
    Rule(4, "Test plan", Severity.MAJOR, _untested_requirements),
)
ISSUE_RULES = (
    Rule(1, "Requirements", Severity.CRITICAL, _untestable_brief),
    Rule(2, "Document", Severity.CRITICAL, _missing_issue_sections),
    Rule(2, "Labels", Severity.MAJOR, _no_labels),
    Rule(3, "Requirements", Severity.MAJOR, _vague_requirements),
    Rule(3, "Acceptance criteria", Severity.MAJOR, _unaccepted_requirements),
)


def _body(subject: Subject, name: str) -> str:
    section = subject.draft.section(name)
    return section.body.strip() if section else ""


def _labelled(subject: Subject, name: str = "Requirements") -> dict[str, str]:
    """The list items of a section that begin with a label such as R1, by label."""
    section = subject.draft.section(name)
    found = (LABELLED.match(item) for item in (section.items if section else ()))
    return {match[1]: match[2] for match in found if match}
