"""Renders the parts of a project's code that a model is shown, within a token budget."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentos.codebase.words import words

if TYPE_CHECKING:
    from agentos.codebase.index import IndexedFile
    from agentos.codebase.signatures import Definition

CHARACTERS_PER_TOKEN = 4
_INDENT = " "


def estimated_tokens(text: str) -> int:
    """An estimate of the text's tokens; the provider's count is known only after the call."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def estimated_characters(token_count: int) -> int:
    return token_count * CHARACTERS_PER_TOKEN


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def folder_lines(paths: Sequence[str], limit: int) -> str:
    """All paths, one line per folder.

    If the lines do not fit into `limit` characters, those of the deepest folders show only how many files they have, then
    those of the next level, until the lines fit. What still does not fit is cut off.
    """
    folders: dict[str, list[str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, []).append(name)
    named = {folder: f"{folder or '.'}/: {' '.join(names)}" for folder, names in folders.items()}
    short = {folder: f"{folder or '.'}/: {counted(len(names), 'file')}" for folder, names in folders.items()}
    size = sum(len(line) + 1 for line in named.values())
    lines = dict(named)
    for folder in sorted(folders, key=lambda folder: (-folder.count("/"), -len(named[folder]))):
        if size <= limit:
            break
        if len(short[folder]) < len(named[folder]):
            size -= len(named[folder]) - len(short[folder])
            lines[folder] = short[folder]
    return cut_lines([lines[folder] for folder in sorted(lines)], limit, "folder")


def cut_lines(lines: list[str], limit: int, noun: str) -> str:
    """The lines that fit into `limit` characters, and one that says how many more there are; `noun` is singular."""
    kept, size = [], 0
    for number, line in enumerate(lines):
        size += len(line) + 1
        if size > limit:
            kept.append(f"... and {counted(len(lines) - number, f'more {noun}')}")
            break
        kept.append(line)
    return "\n".join(kept)


def cut_text(text: str, limit: int) -> str:
    """The text up to the last whole line within `limit` characters, and a line that says how much is missing."""
    if len(text) <= limit:
        return text
    note = "\n... cut here: {:,} more characters"
    room = limit - len(note) - 8  # for the digits of the number
    kept = text[: max(room, 0)].rpartition("\n")[0] if room > 0 else ""
    return kept + note.format(len(text) - len(kept)) if kept else ""


@dataclass(frozen=True, slots=True)
class RenderedFile:
    """A file's signatures as shown. `hidden` is the number of definitions that did not fit."""

    path: str
    text: str
    hidden: int = 0


def render_signatures(file: "IndexedFile", limit: int, wanted: frozenset[str]) -> RenderedFile | None:
    """The file's definitions within `limit` characters, in the order of the file.

    If they do not all fit, those with a `wanted` word in their name are chosen first, then the outermost. None if not one
    of them fits.
    """
    listed = [definition for definition in file.definitions if definition.signature]
    lines = [f"{_INDENT * (d.depth + 1)}{d.signature}" for d in listed]
    head = f"{file.path}\n"
    if len(head) + sum(len(line) + 1 for line in lines) <= limit:
        return RenderedFile(file.path, head + "\n".join(lines))
    chosen: set[int] = set()
    size = len(head) + len("  ... 9999 more definitions")
    for number in sorted(
        range(len(listed)), key=lambda n: (not _matches(listed[n], wanted), listed[n].depth, n)
    ):
        if size + len(lines[number]) + 1 > limit:
            continue
        chosen.add(number)
        size += len(lines[number]) + 1
    if not chosen:
        return None
    hidden = len(listed) - len(chosen)
    shown = "\n".join(lines[number] for number in sorted(chosen))
    return RenderedFile(
        file.path, f"{head}{shown}\n{_INDENT}... {counted(hidden, 'more definition')}", hidden
    )


def _matches(definition: "Definition", wanted: frozenset[str]) -> bool:
    return not wanted.isdisjoint(words(definition.name))
