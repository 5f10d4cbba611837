"""The `lld` workflow: turns an issue into a low-level design."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from agentos.workflows import (
    Candidate,
    Conclusion,
    Gate,
    Item,
    ItemStatus,
    NodeContext,
    Page,
    SkippedFile,
    UnsafeFile,
    Verdict,
    in_file,
    list_folder,
    markdown_files,
    page_item,
    page_of,
    read_page,
    skipped_files,
)
from agentos.workflows.human_gate import HumanGate, stage_of
from agentos.workflows.material import CodeMaterial
from agentos.workflows.review_loop import (
    ReviewLoop,
    Routes,
    State,
    compose,
    is_over,
    read_metadata,
    reviews,
    with_metadata,
)

if TYPE_CHECKING:
    from langgraph.graph import StateGraph

ISSUES = "issues"
APPROVED, REVISION = "docs/lld/active", "docs/lld/needs-revision"


class LldWorkflow:
    """Every open issue without an approved design is pending; the status comes from the files under `docs/lld`."""

    name = "lld"
    prefix = "LLD"
    folders: tuple[str, ...] = (ISSUES,)
    uses_code = True
    reads_issues = True
    gates = (Gate.DRAFT, Gate.VERDICT)

    def __init__(self, pages: Sequence[Page] | None = None) -> None:
        """`pages` are the issues of a project that does not keep them as files; any folder can then be a project."""
        self._pages = pages
        if pages is not None:
            self.folders = (".",)

    def with_issues(self, pages: Sequence[Page]) -> "LldWorkflow":
        return LldWorkflow(pages)

    def candidates(self, project: Path) -> list[Candidate]:
        folders = (APPROVED, REVISION)
        documents = {name for folder in folders for name in list_folder(project / folder, project)}
        # Lazily, page by page, because all texts together may not fit into memory.
        files = (read_page(path, project) for path in markdown_files(project / ISSUES, project))
        pages = files if self._pages is None else self._pages
        found = [self._candidate(project, page, documents) for page in pages if page.number is not None]
        return sorted(found, key=lambda candidate: (candidate.item.number, candidate.item.source))

    def _candidate(self, project: Path, page: Page, documents: set[str]) -> Candidate:
        item = page_item(self, page, page.number or 0, ISSUES)
        if self._pages is not None:
            item = replace(item, source=str(page.path))
        if not page.is_open:
            return Candidate(item, ItemStatus.CLOSED)
        has_document = document_name(item.number) in documents
        status = self.status(project, item) if has_document else ItemStatus.PENDING
        is_changed = False
        if status is ItemStatus.APPROVED:
            approved = read_metadata(project / design_path(item.number), project)
            is_changed = approved is not None and approved.source_sha256 != item.digest
        problems = tuple(in_file(item.source, text) for text in _problems(page))
        return Candidate(
            item,
            status,
            problems=problems,
            changed_since_approval=is_changed,
            ignored=tuple(in_file(item.source, text) for text in page.ignored),
            has_unknown_labels=not page.is_readable,
        )

    def skipped(self, project: Path) -> list[SkippedFile]:
        return skipped_files(project, ISSUES) if self._pages is None else []

    def status(self, project: Path, item: Item) -> ItemStatus:
        name = document_name(item.number)
        if os.path.isfile(f"{project}/{APPROVED}/{name}"):
            # Even without review metadata: a person wrote it then, and it must not be overwritten.
            return ItemStatus.APPROVED
        revision = read_metadata(project / REVISION / name, project)
        if revision is None:
            return ItemStatus.PENDING
        return ItemStatus.UNCHANGED if revision.source_sha256 == item.digest else ItemStatus.CHANGED

    def approved_documents(self, project: Path, item: Item) -> tuple[str, ...]:
        return (design_path(item.number),)

    def graph(self, context: NodeContext) -> "StateGraph[Any, Any, Any, Any]":
        material = CodeMaterial(context, design_path(context.item.number))
        loop = ReviewLoop(context, self.name, "issue", material)

        async def load(state: State) -> State:
            source = context.item.source
            page = (
                read_page(context.root / source, context.root)
                if context.text is None
                else page_of(Path(source), context.text)
            )
            return await loop.load(page.body, _problems(page))

        async def finalize(state: State) -> State:
            approved = state["verdict"] == Verdict.APPROVED.value
            if approved:
                body = loop.approved_document(state)
            else:
                body = f"{context.read_lineage(state['draft']).rstrip()}\n\n{loop.reasons(state)}"
            name = f"{APPROVED if approved else REVISION}/{document_name(context.item.number)}"
            context.folder.write(name, with_metadata(loop.metadata(state), body).encode())
            if approved:
                context.folder.remove(f"{REVISION}/{document_name(context.item.number)}")
            if remark := remark_on(approved):
                context.say(remark)
            return {"result": name}

        def remark_on(approved: bool) -> str:
            """What the author of the issue would otherwise take wrongly; empty if nothing."""
            item = context.item
            design = context.root / design_path(item.number)
            if not approved:
                return (
                    f"The approved design of before stays: {design_path(item.number)}"
                    if design.is_file()
                    else ""
                )
            with contextlib.suppress(OSError, UnsafeFile):
                if (
                    context.text is None
                    and read_page(context.root / item.source, context.root).digest != item.digest
                ):
                    return (
                        f"{item.source} has changed in the meantime, and this design is based on the earlier text; "
                        f"redo it with --fresh {item.number}"
                    )
            return ""

        nodes = {
            "N0_load_issue": load,
            "N1_design": loop.draft,
            "N2_human_edit": HumanGate(context).human,
            "N3_review": loop.review,
            "N4_finalize": finalize,
        }
        return compose(nodes, _routes(context))

    def conclude(self, state: Mapping[str, Any]) -> Conclusion:
        return Conclusion(
            Verdict(state["verdict"]),
            reviews(cast(State, state)),
            state["result"],
            str(state.get("stop_reason") or ""),
        )


def _routes(context: NodeContext) -> dict[str, Routes]:
    """The one human node comes before the review and, when verdicts are gated, after it too."""

    def after_decision(state: State) -> str:
        return "N4_finalize" if is_over(state) else "N1_design"

    def after_review(state: State) -> str:
        return "N2_human_edit" if Gate.VERDICT in context.gates else after_decision(state)

    def after_human(state: State) -> str:
        if stage_of(state) is Gate.VERDICT or state.get("sent_back") or state.get("stop_reason"):
            return after_decision(state)
        return "N3_review"

    return {
        "N2_human_edit": Routes(("N1_design", "N3_review", "N4_finalize"), after_human),
        "N3_review": Routes(("N1_design", "N2_human_edit", "N4_finalize"), after_review),
    }


def document_name(number: int) -> str:
    return f"LLD-{number:03}.md"


def design_path(number: int) -> str:
    """Where the approved design of an issue is, relative to the project."""
    return f"{APPROVED}/{document_name(number)}"


def _problems(page: Page) -> tuple[str, ...]:
    """Why it cannot be an issue. One from GitHub has its state there, whatever its text begins with."""
    is_file = page.path.suffix == ".md"
    return (*page.problems, page.state_problem) if page.state_problem and is_file else page.problems
