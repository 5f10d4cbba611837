"""The `issue` workflow: turns a brief into a filed issue. Every brief has a permanent number."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from agentos.workflows import (
    Candidate,
    Conclusion,
    Documents,
    Filing,
    Gate,
    Item,
    ItemError,
    ItemStatus,
    NodeContext,
    SkippedFile,
    Verdict,
    check_folder,
    file_issue,
    file_number,
    in_file,
    list_folder,
    markdown_files,
    page_item,
    read_page,
    read_regular,
    skipped_files,
    slug_of,
)
from agentos.workflows.human_gate import HumanGate
from agentos.workflows.material import RelatedMaterial
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

ACTIVE, DONE = "ideas/active", "ideas/done"
ISSUES = "issues"
NUMBERS = "ideas/.numbers"
_MAX_NAME = 4096  # bytes
_NUMBER = re.compile(r"[0-9]{1,9}")
REVISION = "docs/issues/needs-revision"
DESIGNS = "docs/lld/active"


class IssueWorkflow:
    """Every brief in `ideas/active` is pending; filing its issue moves it to `ideas/done`."""

    name = "issue"
    prefix = "ISSUE"
    folders: tuple[str, ...] = (ACTIVE,)
    files_issues = True
    gates = (Gate.DRAFT, Gate.VERDICT)

    def candidates(self, project: Path) -> list[Candidate]:
        numbers = brief_numbers(project)
        found = [
            self._candidate(project, path, numbers[path.name], folder)
            for folder in (ACTIVE, DONE)
            for path in markdown_files(project / folder, project)
        ]
        return sorted(found, key=lambda candidate: (candidate.item.number, candidate.item.source))

    def _candidate(self, project: Path, path: Path, number: int, folder: str) -> Candidate:
        page = read_page(path, project)
        item = page_item(self, page, number, folder)
        problems = tuple(in_file(item.source, text) for text in page.problems)
        ignored = tuple(in_file(item.source, text) for text in page.ignored)
        return Candidate(
            item,
            self.status(project, item),
            problems=problems,
            ignored=ignored,
            has_unknown_labels=not page.is_readable,
        )

    def skipped(self, project: Path) -> list[SkippedFile]:
        return skipped_files(project, ACTIVE, numbered=False)

    def prepare(self, documents: Documents) -> None:
        assign_numbers(documents)

    def status(self, project: Path, item: Item) -> ItemStatus:
        name = Path(item.source).name
        if (project / DONE / name).exists() and not (project / ACTIVE / name).exists():
            return ItemStatus.APPROVED
        revision = read_metadata(project / REVISION / document_name(item.number), project)
        if revision is None:
            return ItemStatus.PENDING
        return ItemStatus.UNCHANGED if revision.source_sha256 == item.digest else ItemStatus.CHANGED

    def graph(self, context: NodeContext) -> "StateGraph[Any, Any, Any, Any]":
        related = RelatedMaterial(context, ISSUES, DESIGNS)
        loop = ReviewLoop(context, self.name, "brief", related)

        async def load(state: State) -> State:
            page = read_page(context.root / context.item.source, context.root)
            return await loop.load(page.body, page.problems)

        async def sandbox(state: State) -> State:
            _check_filing(context.root)
            if context.tracker and (unverified := await context.tracker.check()):
                context.say(f"Cannot be verified before filing: {unverified}")
            return {}

        async def file(state: State) -> State:
            if state["verdict"] == Verdict.APPROVED.value:
                draft = context.read_lineage(state["draft"])
                source = context.read_lineage(state["source"])
                await related.prepare(state, source)
                for duplicate in related.duplicates(draft, source):
                    context.say(f"Possible duplicate of {duplicate}")
                return {"result": await _file(context, loop.approved_document(state))}
            body = f"{context.read_lineage(state['draft']).rstrip()}\n\n{loop.reasons(state)}"
            name = f"{REVISION}/{document_name(context.item.number)}"
            context.folder.write(name, with_metadata(loop.metadata(state), body).encode())
            return {"result": name}

        nodes = {
            "N0_load_brief": load,
            "N1_sandbox": sandbox,
            "N2_draft": loop.draft,
            "N3_human_edit_draft": HumanGate(context).human,
            "N4_review": loop.review,
            "N5_human_edit_verdict": HumanGate(context).human,
            "N6_file": file,
        }
        return compose(nodes, _ROUTES)

    def conclude(self, state: Mapping[str, Any]) -> Conclusion:
        return Conclusion(
            Verdict(state["verdict"]),
            reviews(cast(State, state)),
            state["result"],
            str(state.get("stop_reason") or ""),
        )


def _after_verdict(state: State) -> str:
    return "N6_file" if is_over(state) else "N2_draft"


def _after_draft(state: State) -> str:
    return _after_verdict(state) if state.get("sent_back") or state.get("stop_reason") else "N4_review"


_ROUTES = {
    "N3_human_edit_draft": Routes(("N2_draft", "N4_review", "N6_file"), _after_draft),
    "N5_human_edit_verdict": Routes(("N2_draft", "N6_file"), _after_verdict),
}


def document_name(number: int) -> str:
    return f"ISSUE-{number:03}.md"


async def _file(context: NodeContext, draft: str) -> str:
    item = context.item
    name = Path(item.source).name
    filing = Filing(item.id, slug_of(name), item.labels, draft)
    if context.tracker:
        result = await context.tracker.file(filing, context.say)
    else:
        result = file_issue(context.root, context.folder, filing)
    context.folder.move(f"{ACTIVE}/{name}", f"{DONE}/{name}")
    context.folder.remove(f"{REVISION}/{document_name(item.number)}")
    context.say(f"Filed as {result}")
    return result


def _check_filing(project: Path) -> None:
    """Fail before any model call is paid for if the issue could not be written at the end."""
    for folder in (ISSUES, DONE):
        path = project / folder
        check_folder(path, project)
        while not path.exists():
            path = path.parent
        if not path.is_dir() or not os.access(path, os.W_OK | os.X_OK):
            raise ItemError(f"cannot file: {path} is not a writable folder")


def brief_numbers(project: Path) -> dict[str, int]:
    """File name -> number: from the name, else the one assigned earlier, else the next free one."""
    names = [path.name for folder in (ACTIVE, DONE) for path in markdown_files(project / folder, project)]
    numbers = {name: number for name in names if (number := file_number(Path(name))) is not None}
    assigned = _assigned(project)
    numbers |= {name: assigned[name] for name in names if name not in numbers and name in assigned}
    next_free = max([0, *numbers.values(), *assigned.values()]) + 1
    for name in sorted(set(names) - set(numbers)):
        numbers[name] = next_free
        next_free += 1
    return numbers


def assign_numbers(documents: Documents) -> None:
    """Record the numbers of briefs whose names have none: one file per number, never rewritten."""
    with documents.numbering():
        assigned = _assigned(documents.root)
        for name, number in brief_numbers(documents.root).items():
            if file_number(Path(name)) is None and name not in assigned:
                documents.write(f"{NUMBERS}/{number}", os.fsencode(name) + b"\n")


def _assigned(project: Path) -> dict[str, int]:
    folder = project / NUMBERS
    numbers = [name for name in list_folder(folder, project) if _NUMBER.fullmatch(name)]
    contents = {int(name): read_regular(folder / name, project, _MAX_NAME) for name in numbers}
    return {os.fsdecode(content.removesuffix(b"\n")): number for number, content in contents.items()}
