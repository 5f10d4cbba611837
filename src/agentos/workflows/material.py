"""What the drafter and the reviewer see besides the source, and the mechanical check of a draft.

`Material` shows nothing, `CodeMaterial` adds the project's code to the prompts for a design, `RelatedMaterial` adds
existing issues and designs to the prompts for an issue.
"""

import hashlib
from collections.abc import Mapping
from typing import TypedDict

from agentos.codebase.draft_check import CheckResult, check_draft
from agentos.codebase.related import (
    MAX_DOCUMENTS,
    RelatedDocument,
    document_names,
    nearest,
    read_documents,
)
from agentos.codebase.words import words
from agentos.workflows.node_context import LineageFile, NodeContext

__all__ = ["CodeMaterial", "Material", "RelatedMaterial"]
MAX_CHECKS = 2
"""Rounds of the mechanical check for one draft; they do not count as reviews."""
_SHOWN_CHANGES = 5
_RELATED_ISSUES, _RELATED_DESIGNS = 5, 2
_SHOWN_DUPLICATES = 3
_COMPARABLE_WORDS = 8  # a brief with fewer words resembles too many issues
_EXCERPT = 600  # characters of a related document
DUPLICATE = 0.6
"""Share of an issue's distinctive words above which another issue may be a duplicate."""


class CodeState(TypedDict, total=False):
    """What the graph's state keeps about the code that was shown.

    project, code: the shown texts, kept with the item's lineage.
    code_snapshot, code_commit: where they come from.
    code_blobs: the hash of every file shown, by path.
    """

    project: LineageFile
    code: LineageFile
    code_snapshot: str
    code_commit: str
    code_blobs: dict[str, str]


class Material:
    """The base: no variables, no check."""

    async def prepare(self, state: CodeState, source: str) -> CodeState:
        """What to add to the state before the next prompt is built."""
        return {}

    def texts(self, state: CodeState, source: str) -> Mapping[str, str]:
        """The prompt variables besides source, draft and feedback."""
        return {}

    def check(self, draft: str, source: str) -> CheckResult | None:
        """The findings on a draft; None if drafts of this kind are not checked."""
        return None

    def facts(self, state: CodeState, draft: str, source: str) -> str:
        """Facts about a draft for its reviewer, found without a model."""
        return ""


class CodeMaterial(Material):
    """Shows the project's code to a design, and checks every path and symbol that the design names."""

    def __init__(self, context: NodeContext, own_design: str) -> None:
        self._context = context
        self._own_design = own_design

    async def prepare(self, state: CodeState, source: str) -> CodeState:
        """Build the context once per snapshot; report when a later snapshot replaces it."""
        code = self._context.code
        if code is None:
            return {}
        if not await code.ready(self._context.say):
            self._context.say("The code is not indexed and nobody is indexing it: drafting without it")
            return {}
        if state.get("code_snapshot") == code.snapshot:
            return {}
        if changed := code.changed_since(state.get("code_blobs", {})):
            self._context.say(f"The code changed since the last draft: {_listed(changed)}")
        found = code.context(self._context.item.title, source, self._own_design)
        self._context.say(f"Code shown: {found.tokens:,} tokens from {code.commit[:12]}")
        return {
            "project": self._keep("project", found.shared_text),
            "code": self._keep("code", found.own_text),
            "code_snapshot": code.snapshot,
            "code_commit": code.commit,
            "code_blobs": dict(found.blobs),
        }

    def texts(self, state: CodeState, source: str) -> Mapping[str, str]:
        context = self._context
        return {
            "project": context.read_lineage(state["project"]) if "project" in state else "",
            "code": context.read_lineage(state["code"]) if "code" in state else "",
        }

    def check(self, draft: str, source: str) -> CheckResult:
        with_form = not self._context.has_own_prompt("lld_draft")
        code = self._context.code
        if code is None or not code.is_indexed():
            return check_draft(draft, source, None, with_form=with_form)
        return code.check(draft, source, with_form=with_form)

    def facts(self, state: CodeState, draft: str, source: str) -> str:
        lines = [self.check(draft, source).as_text()]
        code = self._context.code
        if code and code.is_indexed() and (changed := code.changed_since(state.get("code_blobs", {}))):
            lines.append(f"The code changed since this draft: {_listed(changed)}.")
        return "\n".join(lines)

    def _keep(self, name: str, text: str) -> LineageFile:
        """Written beside the numbered files, because it is not a step of the document."""
        path, content = f"{self._context.lineage}/{name}.md", text.encode("utf-8", "replace")
        self._context.folder.write(path, content)
        return {"path": path, "sha256": hashlib.sha256(content).hexdigest()}


class RelatedMaterial(Material):
    """Shows the issues and designs that are most similar to a brief, so that nothing is filed twice."""

    def __init__(self, context: NodeContext, issues: str, designs: str) -> None:
        self._context = context
        self._issues = issues
        self._designs = designs

    async def prepare(self, state: CodeState, source: str) -> CodeState:
        if self._context.tracker:
            await self._context.tracker.refresh()
        return {}

    def texts(self, state: CodeState, source: str) -> Mapping[str, str]:
        text = f"{self._context.item.title}\n{source}"
        found = [
            *self._nearest_issues(text, _RELATED_ISSUES),
            *nearest(read_documents(self._context.root, self._designs), text, _RELATED_DESIGNS),
        ]
        return {"related": "\n\n".join(map(_excerpt, found))}

    def facts(self, state: CodeState, draft: str, source: str) -> str:
        found = [f"Possible duplicate: {text}." for text in self.duplicates(draft, source)] or [
            "No duplicate found."
        ]
        older = len(document_names(self._context.root, self._issues)) - MAX_DOCUMENTS
        if older > 0:
            found.append(f"Not compared: the {older:,} files in {self._issues} whose names come first.")
        return "\n".join(found)

    def duplicates(self, draft: str, source: str) -> list[str]:
        """The issues that may duplicate the drafted one, each with its title and similarity.

        The brief is compared too, because a person's issue is often as short as a brief, and says much less than a
        draft.
        """
        brief = f"{self._context.item.title}\n{source}"
        compared = [draft, brief] if len(set(words(brief))) >= _COMPARABLE_WORDS else [draft]
        near: dict[str, RelatedDocument] = {}
        for text in compared:
            for document in self._nearest_issues(text, _SHOWN_DUPLICATES):
                known = near.get(document.path)
                if document.similarity >= max(DUPLICATE, known.similarity if known else 0):
                    near[document.path] = document
        found = sorted(near.values(), key=lambda document: -document.similarity)
        return [
            f"{document.path}, {document.title} ({document.similarity:.0%} of the distinctive words)"
            for document in found[:_SHOWN_DUPLICATES]
        ]

    def _nearest_issues(self, text: str, count: int) -> list[RelatedDocument]:
        """In the project's folder and in its tracker."""
        found = nearest(read_documents(self._context.root, self._issues), text, count)
        if tracker := self._context.tracker:
            found = sorted([*found, *tracker.related(text, count)], key=lambda each: -each.similarity)
        return found[:count]


def _excerpt(document: RelatedDocument) -> str:
    body = document.body.strip()
    return f"--- {document.path} ---\n{body[:_EXCERPT]}{' ...' if len(body) > _EXCERPT else ''}"


def _listed(paths: list[str]) -> str:
    more = f" and {len(paths) - _SHOWN_CHANGES} more" if len(paths) > _SHOWN_CHANGES else ""
    return ", ".join(paths[:_SHOWN_CHANGES]) + more
