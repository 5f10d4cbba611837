"""Parses the documentation: pages with their code blocks, links, headings and tables."""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .tree import ROOT, tracked

FENCE = re.compile(r"^```(.*)$")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|<img[^>]*\ssrc=\"([^\"]+)\"")
HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*$")
CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True, slots=True)
class Command:
    """A line after `$ `, and the output that the page shows below it."""

    text: str
    shown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block; its `marks` follow the language: `console run exit=130`."""

    language: str
    marks: tuple[str, ...]
    lines: tuple[str, ...]

    def commands(self) -> list[Command]:
        found: list[tuple[str, list[str]]] = []
        for line in self.lines:
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif found:
                found[-1][1].append(line)
        return [Command(text, tuple(shown)) for text, shown in found]

    def mark(self, name: str) -> str | None:
        return next((mark.partition("=")[2] for mark in self.marks if mark.partition("=")[0] == name), None)


@dataclass(frozen=True, slots=True)
class Page:
    name: str
    blocks: tuple[Block, ...]
    prose: tuple[str, ...] = field(repr=False)

    @property
    def folder(self) -> Path:
        return (ROOT / self.name).parent

    def links(self) -> list[str]:
        return [found[1] or found[2] for line in self.prose for found in LINK.finditer(CODE.sub("", line))]

    def code(self) -> Iterator[str]:
        """The inline code of the text."""
        for line in self.prose:
            yield from CODE.findall(line)

    def anchors(self) -> set[str]:
        return {_anchor(found[2]) for line in self.prose if (found := HEADING.match(line))}

    def rows(self, heading: str) -> list[list[str]]:
        """The rows of the table below a heading, without the header."""
        rows, inside = [], False
        for line in self.prose:
            if found := HEADING.match(line):
                inside = found[2].replace("`", "") == heading
            elif inside and line.startswith("|"):
                rows.append([cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        return rows[2:]


@functools.cache
def pages() -> dict[str, Page]:
    """Every Markdown file in docs/ and at the top of the repository."""
    names = [
        name for name in tracked() if name.endswith(".md") and (name.startswith("docs/") or "/" not in name)
    ]
    return {name: _read(name) for name in names}


def _read(name: str) -> Page:
    blocks, prose = [], []
    info: str | None = None
    inside: list[str] = []
    for line in (ROOT / name).read_text("utf-8").splitlines():
        fence = FENCE.match(line.strip())
        if fence and info is None:
            info, inside = fence[1], []
        elif fence:
            language, *markers = (info or "text").split() or ["text"]
            blocks.append(Block(language, tuple(markers), tuple(inside)))
            info = None
        elif info is None:
            prose.append(line)
        else:
            inside.append(line)
    return Page(name, tuple(blocks), tuple(prose))


def _anchor(heading: str) -> str:
    """The anchor that GitHub generates for a heading."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").casefold()).replace(" ", "-")
