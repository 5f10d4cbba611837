"""Extracts from an issue or a brief the facts that a design needs."""

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


# The first match decides, so that "Out of scope" is not mistaken for a scope.
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
# Quotations, such as the rule engine's own note, and HTML comments.
ASIDE = re.compile(r">|<!--")
LITERAL = re.compile(r"\d|`|\"")
MAX_REQUIREMENTS = 100  # more of them are a backlog, not an issue
NUMBERED = re.compile(r"^\**R\d+\**[:.]?\**\s*")


@dataclass(frozen=True, slots=True)
class SourceFacts:
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


def gather_facts(source: str) -> SourceFacts:
    document = read_document(source)
    other = _sections_on(document, Topic.OTHER)
    statements = [*_statements(other), *_statements(_sections_on(document, Topic.REQUIREMENTS))]
    return SourceFacts(
        title=document.title,
        context=tuple(text for section in other for text in section.paragraphs if not ASIDE.match(text)),
        requirements=_requirements(document)[:MAX_REQUIREMENTS],
        acceptance=_stated(_sections_on(document, Topic.ACCEPTANCE))[:MAX_REQUIREMENTS],
        failures=_stated(_sections_on(document, Topic.FAILURES))
        or tuple(s for s in statements if FAILURE.search(s)),
        questions=_stated(_sections_on(document, Topic.QUESTIONS)),
        excluded=_stated(_sections_on(document, Topic.EXCLUDED)),
        stored=tuple(dict.fromkeys(s for s in statements if STORAGE.search(s))),
        names=code_spans(source),
    )


def is_testable(requirement: str) -> bool:
    """A vague word is fine if a number, a name or a quotation makes the requirement definite."""
    return not VAGUE.search(requirement) or bool(LITERAL.search(requirement))


def is_literal(requirement: str) -> bool:
    return bool(LITERAL.search(requirement))


def topic_of(heading: str) -> Topic:
    return next((topic for topic, pattern in HEADINGS if pattern.search(heading)), Topic.OTHER)


def _sections_on(document: MarkdownDocument, topic: Topic) -> list[Section]:
    return [section for section in document.sections if topic_of(section.heading) is topic]


def _requirements(document: MarkdownDocument) -> tuple[str, ...]:
    """Taken from the most explicit place that states any."""
    other = _sections_on(document, Topic.OTHER)
    return (
        _stated(_sections_on(document, Topic.REQUIREMENTS))
        or tuple(item for section in other for item in section.items)
        or _stated(_sections_on(document, Topic.ACCEPTANCE))
        or tuple(statement for statement in _statements(other) if DEMAND.search(statement))
    )


def _stated(sections: Iterable[Section]) -> tuple[str, ...]:
    """The list items of each section, or its sentences if it has no list."""
    stated = (section.items or _statements([section]) for section in sections)
    return tuple(NUMBERED.sub("", text) for texts in stated for text in texts)


def _statements(sections: Iterable[Section]) -> tuple[str, ...]:
    return tuple(
        sentence
        for section in sections
        for block in (*section.paragraphs, *section.items)
        for sentence in sentences(block)
    )
