"""What a model wraps around its answer, taken off; and revisions of a document, applied section by section."""

import difflib
import re
from dataclasses import dataclass

_THOUGHT = re.compile(r"\s*<(think|thinking)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"\s*(`{3,}|~{3,})[\w+-]*[ \t]*\n(.*?)\n?[ \t]*\1[ \t]*\s*", re.DOTALL)
_SECTION = re.compile(r"##[ \t]+(\S.*)")
_SUBSECTION = re.compile(r"^###+[ \t]+(\S.*)$", re.MULTILINE)
_NAMED = re.compile(r"\bR[0-9]+\b|`[^`\n]+`")  # labels of requirements, and what stands in back-quotes
_TITLE = "title"


def unwrap(text: str) -> str:
    """The answer without a leading block of thoughts and without one code fence around the whole."""
    text = _THOUGHT.sub("", text, count=1) if _THOUGHT.match(text) else text
    fenced = _FENCE.fullmatch(text)
    return (fenced[2] if fenced and fenced[1] not in fenced[2] else text).strip("\n")


def has_sections(text: str) -> bool:
    return len(_blocks(text)) > 1


def apply_revision(document: str, revision: str) -> str:
    """The document with the `## Heading` sections of the revision in place of its own; the rest is kept word for word.

    A section that the document does not have follows the one that it follows in the revision. The title changes only if
    the revision has one; other text before its first section is a remark and left out. A document without
    sections is replaced as a whole.
    """
    kept, changed = _blocks(document), _blocks(revision)
    if len(kept) == 1:
        return revision.strip("\n") + "\n"
    if changed[0][1].lstrip().startswith("# "):
        kept[0] = changed[0]
    place = 0
    for heading, block in changed[1:]:
        names = [name for name, _ in kept]
        if heading in names[1:]:
            place = names.index(heading, 1)
            kept[place] = (heading, block)
        else:
            place = place + 1 if place else len(kept)
            kept.insert(place, (heading, block))
    return "\n\n".join(block.strip("\n") for _, block in kept if block.strip()) + "\n"


@dataclass(frozen=True, slots=True)
class Revision:
    """Two versions of a document. Says whether a remark on the later one is about something that changed."""

    before: str
    after: str

    def concerns(self, section: str, description: str) -> bool:
        """Whether the remark names a section that changed, or a label or name that stands on a changed line."""
        return bool(
            self._sections_named(section) & self._changed_sections() or self._changed_names(description)
        )

    def _changed_sections(self) -> set[str]:
        before, after = dict(_blocks(self.before)), dict(_blocks(self.after))
        return {name for name in before | after if _words(before.get(name)) != _words(after.get(name))}

    def _sections_named(self, section: str) -> set[str]:
        """The sections that a reviewer's words stand for: by name, by a subsection, or by a similar name."""
        owners = {_TITLE: ""}
        for name, block in (*_blocks(self.before), *_blocks(self.after)):
            owners |= {_heading(found): name for found in _SUBSECTION.findall(block)}
            owners |= {name: name} if name else {}
        wanted = _heading(section)
        named = {owner for name, owner in owners.items() if re.search(rf"\b{re.escape(name)}\b", wanted)}
        return named or {owners[name] for name in difflib.get_close_matches(wanted, owners, 1)}

    def _changed_names(self, description: str) -> set[str]:
        lines = set(self.before.splitlines()) ^ set(self.after.splitlines())
        return set(_NAMED.findall(description)) & set(_NAMED.findall("\n".join(lines)))


def _words(text: str | None) -> list[str] | None:
    return None if text is None else text.split()


def _heading(text: str) -> str:
    return " ".join(text.strip("# ").casefold().split())


def _blocks(text: str) -> list[tuple[str, str]]:
    """The text before the first `##` heading under the name "", then each section with its heading in lower case."""
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
