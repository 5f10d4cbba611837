"""Parses Markdown into sections with paragraphs and list items."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

HEADING = re.compile(r"^(#{1,6})[ \t]+(\S.*)$")
LIST_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+(?:\[[ xX]\]\s+)?(.*)$")
FRONT_MATTER = re.compile(r"\A(\+\+\+|---)\n(.*?)\n\1\s*(?:\n|\Z)", re.DOTALL)
FRONT_TITLE = re.compile(r"^title[ \t]*[:=](.*)$", re.MULTILINE)
CODE_SPAN = re.compile(r"`([^`\n]+)`")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"'(])")


@dataclass(frozen=True, slots=True)
class Section:
    heading: str
    level: int
    lines: tuple[str, ...]

    @property
    def body(self) -> str:
        return "\n".join(self.lines).strip("\n")

    @property
    def items(self) -> tuple[str, ...]:
        return tuple(block.text for block in _blocks(self.lines) if block.is_item)

    @property
    def paragraphs(self) -> tuple[str, ...]:
        return tuple(block.text for block in _blocks(self.lines) if not block.is_item)


@dataclass(frozen=True, slots=True)
class MarkdownDocument:
    title: str
    sections: tuple[Section, ...]

    def section(self, heading: str) -> Section | None:
        wanted = heading.casefold()
        return next(
            (found for found in self.sections if found.heading.casefold() == wanted),
            None,
        )


def read_document(text: str) -> MarkdownDocument:
    """Parses a document. The first top-level heading is its title; text before any section has the heading ""."""
    body = FRONT_MATTER.sub("", text.replace("\r\n", "\n"), count=1)
    sections = list(_sections(body))
    top = next((section for section in sections if section.level == 1), None)
    kept = tuple(Section("", 0, s.lines) if s is top else s for s in sections)
    return MarkdownDocument(
        top.heading if top else _fallback_title(text),
        tuple(s for s in kept if s.heading or s.body),
    )


def sentences(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in SENTENCE_END.split(" ".join(text.split())) if part.strip())


def code_spans(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(CODE_SPAN.findall(text)))


@dataclass(frozen=True, slots=True)
class _Block:
    text: str
    is_item: bool


def _fallback_title(text: str) -> str:
    front = FRONT_MATTER.match(text)
    named = FRONT_TITLE.search(front[2]) if front else None
    if named:
        return named[1].strip().strip("\"'")
    return next((line.strip() for line in text.splitlines() if line.strip()), "Untitled")[:80]


def _sections(text: str) -> Iterator[Section]:
    heading, level, lines, fenced = "", 0, list[str](), False
    for line in text.split("\n"):
        fenced ^= line.lstrip().startswith("```")
        found = None if fenced else HEADING.match(line)
        # Deeper headings stay inside their section.
        if found and len(found[1]) <= 2:
            yield Section(heading, level, tuple(lines))
            heading, level, lines = found[2].rstrip("# \t"), len(found[1]), []
        else:
            lines.append(line)
    yield Section(heading, level, tuple(lines))


def _blocks(lines: tuple[str, ...]) -> Iterator[_Block]:
    words, is_item = list[str](), False
    for line in (*lines, ""):
        item = LIST_ITEM.match(line)
        if (item or not line.strip() or HEADING.match(line)) and words:
            yield _Block(" ".join(words), is_item)
            words, is_item = [], False
        if item:
            words, is_item = [item[1].strip()], True
        elif line.strip() and not HEADING.match(line):
            words.append(line.strip())


class DocumentKind(StrEnum):
    LLD = "lld"
    ISSUE = "issue"
    UNKNOWN = "unknown"


SOURCES = {"issue": DocumentKind.LLD, "brief": DocumentKind.ISSUE}


@dataclass(frozen=True, slots=True)
class Prompt:
    kind: DocumentKind
    source: str
    draft: str
    feedback: str
    verdict: str = ""
    project: str = ""
    code: str = ""
    check: str = ""


def read_prompt(text: str) -> Prompt:
    """Looks for each tag after the end of the previous one, so that tags inside the material are ignored.

    The order is that of the built-in prompts; a tag that is missing counts as empty.
    """
    project = _find("project", text, 0)
    source = _find("issue|brief", text, project.end if project else 0)
    if source is None:
        return Prompt(DocumentKind.UNKNOWN, "", "", "")
    found, end = {"project": project.text if project else ""}, source.end
    for tag in ("code", "draft", "check", "feedback", "verdict"):
        tagged = _find(tag, text, end)
        found[tag] = tagged.text if tagged else ""
        end = tagged.end if tagged else end
    return Prompt(SOURCES[source.tag], source.text, **found)


@dataclass(frozen=True, slots=True)
class _Tagged:
    tag: str
    text: str
    end: int


def _find(tags: str, text: str, start: int) -> _Tagged | None:
    """Finds a tag on a line of its own; tags that the instructions mention in a sentence do not count."""
    opening = re.compile(rf"^<({tags})>[ \t]*$", re.MULTILINE).search(text, start)
    if opening is None:
        return None
    closing = re.compile(rf"^</{opening[1]}>[ \t]*$", re.MULTILINE).search(text, opening.end())
    if closing is None:
        return None
    return _Tagged(opening[1], text[opening.end() : closing.start()].strip("\n"), closing.end())
