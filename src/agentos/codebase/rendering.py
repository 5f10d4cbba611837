"""Renders what a model is shown of a project's code, within a budget of tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

from agentos.codebase.index import IndexedFile
from agentos.codebase.signatures import Definition
from agentos.codebase.words import words

CHARACTERS_PER_TOKEN = 4
_INDENT = " "


def tokens(text: str) -> int:
    """Estimate the number of tokens; providers count them only after the call."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def characters(token_count: int) -> int:
    return token_count * CHARACTERS_PER_TOKEN


def path_tree(paths: Sequence[str], limit: int) -> str:
    """All paths, one line per folder.

    If they do not fit into `limit` characters, folders show only a count, starting with the deepest.
    """
    folders: dict[str, list[str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, []).append(name)
    named = {folder: f"{folder or '.'}/: {' '.join(names)}" for folder, names in folders.items()}
    short = {folder: f"{folder or '.'}/: {len(names)} files" for folder, names in folders.items()}
    size = sum(len(line) + 1 for line in named.values())
    lines = dict(named)
    for folder in sorted(folders, key=lambda folder: (-folder.count("/"), -len(named[folder]))):
        if size <= limit:
            break
        if len(short[folder]) < len(named[folder]):
            size -= len(named[folder]) - len(short[folder])
            lines[folder] = short[folder]
    return cut_lines([lines[folder] for folder in sorted(lines)], limit, "folders")


def cut_lines(lines: list[str], limit: int, noun: str) -> str:
    kept, size = [], 0
    for number, line in enumerate(lines):
        size += len(line) + 1
        if size > limit:
            kept.append(f"... and {len(lines) - number:,} more {noun}")
            break
        kept.append(line)
    return "\n".join(kept)


def cut_text(text: str, limit: int) -> str:
    """The text up to the last whole line within `limit` characters, and a line that says how much is missing."""
    if len(text) <= limit:
        return text
    note = "\n... cut here: {:,} more characters"
    room = limit - len(note) - 8
    kept = text[: max(room, 0)].rpartition("\n")[0] if room > 0 else ""
    return kept + note.format(len(text) - len(kept)) if kept else ""


@dataclass(frozen=True, slots=True)
class RenderedFile:
    """A file's signatures as shown; `hidden` definitions did not fit."""

    path: str
    text: str
    hidden: int = 0


def render_signatures(file: IndexedFile, limit: int, wanted: frozenset[str]) -> RenderedFile | None:
    """The file's definitions within `limit` characters, those with a `wanted` word in their name first.

    None if not even its best definition fits.
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
    return RenderedFile(file.path, f"{head}{shown}\n{_INDENT}... {hidden} more definitions", hidden)


def _matches(definition: Definition, wanted: frozenset[str]) -> bool:
    return not wanted.isdisjoint(words(definition.name))
