"""Removes what models wrap around an answer, and applies a revision to a document section by section."""

import difflib
import re
from dataclasses import dataclass

_THOUGHT = re.compile(r"\s*<(think|thinking)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"\s*(`{3,}|~{3,})[\w+-]*[ \t]*\n(.*?)\n?[ \t]*\1[ \t]*\s*", re.DOTALL)
_SECTION = re.compile(r"##[ \t]+(\S.*)")
_SUBSECTION = re.compile(r"^###+[ \t]+(\S.*)$", re.MULTILINE)
_REFERENCE = re.compile(r"\bR[0-9]+\b|`[^`\n]+`")  # requirement labels, and text in backquotes
_TITLE = "title"


def unwrap(text: str) -> str:
    """Remove a leading block of thoughts, and the code fence if one encloses the whole answer."""
    text = _THOUGHT.sub("", text, count=1) if _THOUGHT.match(text) else text
    fenced = _FENCE.fullmatch(text)
    return (fenced[2] if fenced and fenced[1] not in fenced[2] else text).strip("\n")


def has_sections(text: str) -> bool:
    return len(_blocks(text)) > 1


def apply_revision(document: str, revision: str) -> str:
    """Replace the `## Heading` sections of the document that the revision contains; keep everything else verbatim.

    A new section is inserted after the section that precedes it in the revision. The title changes only if the
    revision has one; any other text before the revision's first section is a comment and is dropped. A document
    without sections is replaced as a whole.
    """
    kept, changed = _blocks(document), _blocks(revision)
    if len(kept) == 1:
        return revision.strip("\n") + "\n"
    if changed[0][1].lstrip().startswith("# "):
        kept[0] = changed[0]
    position = 0
    for heading, block in changed[1:]:
        names = [name for name, _ in kept]
        if heading in names[1:]:
            position = names.index(heading, 1)
            kept[position] = (heading, block)
        else:
            position = position + 1 if position else len(kept)
            kept.insert(position, (heading, block))
    return "\n\n".join(block.strip("\n") for _, block in kept if block.strip()) + "\n"


@dataclass(frozen=True, slots=True)
class Revision:
    """Two versions of a document; tells whether a comment on the later one is about something that changed."""

    before: str
    after: str

    def concerns(self, section: str, description: str) -> bool:
        """Whether the comment refers to a changed section, or mentions a label or name that is on a changed line."""
        return bool(
            self._find_sections(section) & self._changed_sections() or self._changed_references(description)
        )

    def _changed_sections(self) -> set[str]:
        before, after = dict(_blocks(self.before)), dict(_blocks(self.after))
        return {name for name in before | after if _words(before.get(name)) != _words(after.get(name))}

    def _find_sections(self, section: str) -> set[str]:
        """The sections that a reviewer refers to: by heading, by the heading of a subsection, or by a similar one."""
        owners = {_TITLE: ""}
        for name, block in (*_blocks(self.before), *_blocks(self.after)):
            owners |= {_heading(found): name for found in _SUBSECTION.findall(block)}
            owners |= {name: name} if name else {}
        wanted = _heading(section)
        named = {owner for name, owner in owners.items() if re.search(rf"\b{re.escape(name)}\b", wanted)}
        return named or {owners[name] for name in difflib.get_close_matches(wanted, owners, 1)}

    def _changed_references(self, description: str) -> set[str]:
        lines = set(self.before.splitlines()) ^ set(self.after.splitlines())
        return set(_REFERENCE.findall(description)) & set(_REFERENCE.findall("\n".join(lines)))


def _words(text: str | None) -> list[str] | None:
    return None if text is None else text.split()


def _heading(text: str) -> str:
    return " ".join(text.strip("# ").casefold().split())


def _blocks(text: str) -> list[tuple[str, str]]:
    """Split into (heading, text) pairs: first the text before any `##` heading, with an empty heading, then each section.

    Headings are in lower case.
    """
    blocks: list[tuple[str, list[str]]] = [("", [])]
    fence = ""
    for line in text.split("\n"):
        mark = line.lstrip()[:3]
        if mark in ("```", "~~~") and fence in ("", mark):
            fence = "" if fence else mark
        heading = None if fence else _SECTION.fullmatch(line.rstrip())
        if heading:
            blocks.append((_heading(heading[1]), []))
        blocks[-1][1].append(line)
    return [(name, "\n".join(lines)) for name, lines in blocks]
