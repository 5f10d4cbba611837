"""Splits a prompt into source, draft and feedback."""

import re
from dataclasses import dataclass
from enum import StrEnum


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


def read_prompt(text: str) -> Prompt:
    """Looks for each tag after the end of the previous one, so that tags inside the material are ignored."""
    source = _find("issue|brief", text, 0)
    if source is None:
        return Prompt(DocumentKind.UNKNOWN, "", "", "")
    draft = _find("draft", text, source.end) or _Tagged("draft", "", source.end)
    feedback = _find("feedback", text, draft.end) or _Tagged("feedback", "", draft.end)
    return Prompt(SOURCES[source.tag], source.text, draft.text, feedback.text)


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
