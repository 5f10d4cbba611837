"""Assembles what a model is shown of a project for one issue, and says why each part is there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from agentos.codebase.index import CodeIndex, IndexedFile
from agentos.codebase.ranking import RankedFile, rank
from agentos.codebase.related import RelatedDocument, nearest, read_documents
from agentos.codebase.rendering import (
    counted,
    cut_lines,
    cut_text,
    estimated_characters,
    estimated_tokens,
    folder_lines,
    render_signatures,
)
from agentos.codebase.words import words

CONVENTIONS = ("AGENTS.md", "CLAUDE.md", "CONTRIBUTING.md")
"""Files that say how to change the project; shown whole, as far as their share of the budget allows."""
DESIGNS = "docs/lld/active"
NEAREST_DESIGNS = 2
# Shares of the budget. What a part does not use is left to the signatures.
_CONVENTIONS_SHARE, _TREE_SHARE, _DESIGNS_SHARE = 0.10, 0.12, 0.10
_NAMED_SHARE, _OTHERS_SHARE = 0.6, 0.05
_MIN_FILE = 160  # characters; with less space left, no further file is shown
_CONSIDERED = 120  # ranked files
_OTHER_FILES = 12  # ranked files without definitions that are listed


class PartKind(StrEnum):
    NAMED = "named file"
    CONVENTIONS = "conventions"
    TREE = "paths"
    SIGNATURES = "signatures"
    OTHERS = "other matches"
    DESIGN = "earlier design"


@dataclass(frozen=True, slots=True)
class ContextPart:
    """One part of the context: `path` is the file it shows, if any, and `why` the reason for including it."""

    kind: PartKind
    path: str
    why: str
    text: str

    @property
    def tokens(self) -> int:
        return estimated_tokens(self.text)


@dataclass(frozen=True, slots=True)
class CodeContext:
    """What a model is shown. `shared` is the same for every item of a run, `own` belongs to one issue.

    `blobs` has the hash of every file shown by its signatures or whole, so that a later change to it is noticed.
    """

    commit: str
    snapshot: str
    shared: tuple[ContextPart, ...]
    own: tuple[ContextPart, ...]
    blobs: Mapping[str, str] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[ContextPart, ...]:
        return (*self.shared, *self.own)

    @property
    def tokens(self) -> int:
        return estimated_tokens(self.shared_text) + estimated_tokens(self.own_text)

    @property
    def shared_text(self) -> str:
        return _text(self.shared)

    @property
    def own_text(self) -> str:
        return _text(self.own)


_HEADINGS = {
    PartKind.NAMED: "Files shown whole:",
    PartKind.CONVENTIONS: "How this project is changed:",
    PartKind.TREE: "All files of the project, by folder:",
    PartKind.SIGNATURES: "Definitions in the files that match the issue best, the best match first:",
    PartKind.OTHERS: "Other files that match:",
    PartKind.DESIGN: "Approved designs for similar issues:",
}


def _text(parts: Sequence[ContextPart]) -> str:
    """Each kind under its heading, separated by blank lines."""
    blocks, last = [], None
    for part in parts:
        if part.kind is not last:
            blocks.append(_HEADINGS[part.kind])
        last = part.kind
        blocks.append(part.text)
    return "\n\n".join(blocks)


class ContextBuilder:
    """Builds contexts from one snapshot.

    `token_limit` bounds each context, `named` are the files that the user wants whole. Example:

        with CodeIndex(path, snapshot) as index:
            context = ContextBuilder(index, project, 8000).build("Dark mode", text)
    """

    def __init__(
        self,
        index: CodeIndex,
        project: Path,
        token_limit: int,
        named: Sequence[str] = (),
    ) -> None:
        self._index = index
        self._project = project
        self._limit = estimated_characters(token_limit)
        self._named = tuple(named)

    def build(self, title: str, text: str, own_design: str = "") -> CodeContext:
        """The context for an issue. `own_design` is the path of its own design, which is not shown to it."""
        blobs: dict[str, str] = {}
        shared = self._shared(blobs)
        designs = self._designs(f"{title}\n{text}", own_design)
        # Headings and blank lines between parts count, too.
        used = len(_text((*shared, *designs))) + 2 * len(_HEADINGS[PartKind.SIGNATURES])
        own = self._signatures(title, text, self._limit - used, blobs)
        return CodeContext(self._index.commit, self._index.name, shared, (*own, *designs), blobs)

    def _shared(self, blobs: dict[str, str]) -> tuple[ContextPart, ...]:
        parts = self._whole(PartKind.NAMED, self._named, _NAMED_SHARE, "you named it", blobs)
        others = [name for name in CONVENTIONS if name not in self._named]
        parts += self._whole(PartKind.CONVENTIONS, others, _CONVENTIONS_SHARE, "project conventions", blobs)
        paths = self._index.paths()
        tree = folder_lines(paths, int(self._limit * _TREE_SHARE))
        if tree:
            why = f"all {len(paths):,} files" if len(paths) > 1 else "the only file"
            parts.append(ContextPart(PartKind.TREE, "", why, tree))
        return tuple(parts)

    def _whole(
        self, kind: PartKind, paths: Sequence[str], share: float, why: str, blobs: dict[str, str]
    ) -> list[ContextPart]:
        left, parts = int(self._limit * share), []
        for path in paths:
            file = self._index.file(path)
            text = self._index.text(file.blob) if file else None
            if file is None or text is None:
                continue
            shown = cut_text(f"--- {path} ---\n{text.strip()}", left)
            if not shown:
                continue
            left -= len(shown)
            blobs[path] = file.blob
            reason = why if len(shown) > len(text.strip()) else f"{why}; cut to its share of code_tokens"
            parts.append(ContextPart(kind, path, reason, shown))
        return parts

    def _designs(self, text: str, own_design: str) -> tuple[ContextPart, ...]:
        documents = [d for d in read_documents(self._project, DESIGNS) if d.path != own_design]
        found = nearest(documents, text, NEAREST_DESIGNS)
        limit = int(self._limit * _DESIGNS_SHARE / NEAREST_DESIGNS)
        parts = (self._design(document, limit) for document in found)
        return tuple(part for part in parts if part.text)

    def _design(self, document: RelatedDocument, limit: int) -> ContextPart:
        why = f"{document.similarity:.0%} of the issue's distinctive words"
        return ContextPart(
            PartKind.DESIGN,
            document.path,
            why,
            cut_text(f"--- {document.path} ---\n{document.body.strip()}", limit),
        )

    def _signatures(self, title: str, text: str, left: int, blobs: dict[str, str]) -> tuple[ContextPart, ...]:
        wanted = frozenset(words(f"{title}\n{text}"))
        parts: list[ContextPart] = []
        others: list[RankedFile] = []
        ranked = rank(self._index, title, text)[:_CONSIDERED]
        left -= min(_OTHER_FILES * 60, int(self._limit * _OTHERS_SHARE))
        for candidate in ranked:
            file = self._index.file(candidate.path)
            if file is None or file.path in self._named:
                continue
            if not any(definition.signature for definition in file.definitions):
                others.append(candidate)
                continue
            if left < _MIN_FILE:
                if len(others) >= _OTHER_FILES:
                    break
                continue
            part = _signature_part(file, candidate, left, wanted)
            if part:
                left -= len(part.text) + 2
                blobs[file.path] = file.blob
                parts.append(part)
        if others:
            parts.append(_other_part(others, min(_OTHER_FILES * 60, int(self._limit * _OTHERS_SHARE))))
        return tuple(parts)


def _signature_part(
    file: IndexedFile, candidate: RankedFile, left: int, wanted: frozenset[str]
) -> ContextPart | None:
    rendered = render_signatures(file, left, wanted)
    if rendered is None:
        return None
    why = reason_text(candidate)
    if rendered.hidden:
        why += f"; {counted(rendered.hidden, 'definition')} did not fit"
    return ContextPart(PartKind.SIGNATURES, file.path, why, rendered.text)


def _other_part(others: Sequence[RankedFile], limit: int) -> ContextPart:
    text = cut_lines([candidate.path for candidate in others[:_OTHER_FILES]], limit, "file")
    return ContextPart(PartKind.OTHERS, "", "they match, but no definition in them was recognised", text)


def reason_text(candidate: RankedFile) -> str:
    texts = {"words": "words of the issue", "path": "words in its path", "named": "named in the issue"}
    reasons = dict.fromkeys(texts.get(reason, reason) for reason in candidate.reasons)
    return ", ".join(reasons)
