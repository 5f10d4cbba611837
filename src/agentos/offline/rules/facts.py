"""Finds in an issue or brief the facts that a design needs."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from agentos.offline.rules.markdown import MarkdownDocument, Section, code_spans, read_document, sentences


class Topic(StrEnum):
    EXCLUDED = "excluded"
    ACCEPTANCE = "acceptance"
    FAILURES = "failures"
    QUESTIONS = "questions"
    REQUIREMENTS = "requirements"
    LABELS = "labels"
    OTHER = "other"


# the first that matches decides, so "Out of scope" is no scope
HEADINGS = (
    (
        Topic.EXCLUDED,
        re.compile(r"out of scope|non-goal|not (now|included|part)", re.I),
    ),
    (
        Topic.ACCEPTANCE,
        re.compile(r"accept|criteria|done when|definition of done", re.I),
    ),
    (Topic.FAILURES, re.compile(r"fail|error|edge case|goes? wrong", re.I)),
    (Topic.QUESTIONS, re.compile(r"question|undecided|unclear", re.I)),
    (
        Topic.REQUIREMENTS,
        re.compile(r"requirement|should|must|behaviou?r|want|scope|goals", re.I),
    ),
    (Topic.LABELS, re.compile(r"labels?$", re.I)),
)
DEMAND = re.compile(r"\b(must|should|shall|has to|have to|needs? to)\b", re.I)
FAILURE = re.compile(
    r"\b(fails?|failed|unreachable|times? out|invalid|refuse[sd]?|corrupt|rejected)\b",
    re.I,
)
STORAGE = re.compile(r"\b(stored?|saves?|kept|remember\w*|columns?|tables?|index|cache\w*|rows?)\b", re.I)
VAGUE = re.compile(
    r"\b(nice|nicer|better|modern|intuitive|friendly|user-friendly|delight\w*|pleasant|fresh|cleaner|easy|"
    r"easier|fast|faster|slick|simpler?|polished|somehow|etc|appropriate|improve\w*|engaging|lively|best|cool)\b",
    re.I,
)
# quotations such as a rule machine's own note; markers that are not for readers
ASIDE = re.compile(r">|<!--")
LITERAL = re.compile(r"\d|`|\"")
# more requirements than these are a backlog, not an issue
MOST = 100
NUMBERED = re.compile(r"^\**R\d+\**[:.]?\**\s*")


@dataclass(frozen=True, slots=True)
class Facts:
    title: str
    context: tuple[str, ...]
    requirements: tuple[str, ...]
    acceptance: tuple[str, ...]
    failures: tuple[str, ...]
    questions: tuple[str, ...]
    excluded: tuple[str, ...]
    stored: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def testable(self) -> tuple[str, ...]:
        return tuple(text for text in self.requirements if is_testable(text))


def gather_facts(source: str) -> Facts:
    document = read_document(source)
    other = _on(document, Topic.OTHER)
    said = [*_statements(other), *_statements(_on(document, Topic.REQUIREMENTS))]
    return Facts(
        title=document.title,
        context=tuple(text for section in other for text in section.paragraphs if not ASIDE.match(text)),
        requirements=_requirements(document)[:MOST],
        acceptance=_stated(_on(document, Topic.ACCEPTANCE))[:MOST],
        failures=_stated(_on(document, Topic.FAILURES)) or tuple(s for s in said if FAILURE.search(s)),
        questions=_stated(_on(document, Topic.QUESTIONS)),
        excluded=_stated(_on(document, Topic.EXCLUDED)),
        stored=tuple(dict.fromkeys(s for s in said if STORAGE.search(s))),
        names=code_spans(source),
    )


def is_testable(requirement: str) -> bool:
    """A vague word is forgiven where a number, a name or a quotation makes it definite."""
    return not VAGUE.search(requirement) or bool(LITERAL.search(requirement))


def is_literal(requirement: str) -> bool:
    return bool(LITERAL.search(requirement))


def topic_of(heading: str) -> Topic:
    return next((topic for topic, pattern in HEADINGS if pattern.search(heading)), Topic.OTHER)


def _on(document: MarkdownDocument, topic: Topic) -> list[Section]:
    return [section for section in document.sections if topic_of(section.heading) is topic]


def _requirements(document: MarkdownDocument) -> tuple[str, ...]:
    """The most explicit place that says anything wins."""
    other = _on(document, Topic.OTHER)
    return (
        _stated(_on(document, Topic.REQUIREMENTS))
        or tuple(item for section in other for item in section.items)
        or _stated(_on(document, Topic.ACCEPTANCE))
        or tuple(said for said in _statements(other) if DEMAND.search(said))
    )


def _stated(found: Iterable[Section]) -> tuple[str, ...]:
    """List items where there are any, otherwise sentences."""
    chosen = (section.items or _statements([section]) for section in found)
    return tuple(NUMBERED.sub("", text) for texts in chosen for text in texts)


def _statements(found: Iterable[Section]) -> tuple[str, ...]:
    return tuple(
        sentence
        for section in found
        for block in (*section.paragraphs, *section.items)
        for sentence in sentences(block)
    )
