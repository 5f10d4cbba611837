"""Discovery: a workflow's items, each with everything that decides whether it runs."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from agentos.core.errors import PreflightError
from agentos.core.planning.items import FINISHED, Candidate, Gone, ItemStatus
from agentos.core.planning.plan import gone_item, merge_duplicates
from agentos.regular_files import check_folder
from agentos.storage.home import Home
from agentos.storage.item_store import ProjectItems
from agentos.storage.project_access import WRITTEN_FOLDERS
from agentos.storage.review_notes import review_state
from agentos.storage.runs import failed_before
from agentos.workflows.base import LINEAGE_ACTIVE, LINEAGE_DONE, WorkflowMembers
from agentos.workflows.issue import ACTIVE, DONE
from agentos.workflows.node_context import check_project_prompts
from agentos.workflows.redo import is_redo

DOCUMENTS = (LINEAGE_ACTIVE, LINEAGE_DONE)


def discover(
    workflow: WorkflowMembers, project: Path, home: Home, items: ProjectItems, *, only_failed: bool = False
) -> list[Candidate]:
    """All items of the project, with their checkpoints, holders and earlier failures. Reads only."""
    check_project(workflow, project)
    held = items.held()
    failed = failed_before(home.runs, workflow.name, project, required=only_failed)
    checkpoints = items.keys()
    candidates = []
    for candidate in merge_duplicates(workflow.candidates(project)):
        item = candidate.item
        if candidate.status is ItemStatus.CLOSED and not item.problems:
            candidate = replace(candidate, status=workflow.status(project, item), is_closed=True)
        if (key := items.key(workflow.name, item.number)) in checkpoints:
            notes = items.notes(key)
            candidate = _with_checkpoint(candidate, notes)
            if candidate.status is ItemStatus.APPROVED and is_redo(notes, workflow, project, item):
                candidate = replace(candidate, status=ItemStatus.PENDING)
        if item.id in failed or item.id in held:
            candidate = replace(candidate, failed_before=item.id in failed, held_by=held.get(item.id))
        candidates.append(candidate)
    return candidates


def gone_items(
    workflow: WorkflowMembers, home: Home, items: ProjectItems, known: list[Candidate], *, failed: bool
) -> list[Candidate]:
    """Parked items, and with `failed` those that failed in the last run, that are not among the `known` ones any more."""
    found = (
        dict.fromkeys(failed_before(home.runs, workflow.name, items.documents.root), Gone.FAILED)
        if failed
        else {}
    )
    for key in items.keys() - {items.key(workflow.name, candidate.item.number) for candidate in known}:
        notes = items.notes(key)
        state = review_state(notes)
        if state and state.parked_item.workflow == workflow.name and notes.get("node") != FINISHED:
            found[state.parked_item.item] = Gone.PARKED
    # An item in progress may have no file at this moment: a brief, for example, is moved once it is filed.
    others = {candidate.item.id for candidate in known} | (items.held().keys() if found else set())
    return [gone_item(item, workflow.name, why) for item, why in sorted(found.items()) if item not in others]


def check_project(workflow: WorkflowMembers, project: Path) -> None:
    """Raise PreflightError unless the project has the folders for the workflow's items and documents.

    A link in place of a folder could lead out of the project, so it is refused.
    """
    for folder in (*workflow.folders, *DOCUMENTS):
        check_folder(project / folder, project)
    check_project_prompts(project)
    if workflow.folders and not any((project / folder).is_dir() for folder in workflow.folders):
        raise PreflightError(
            f"no project here: {project} has no {' or '.join(workflow.folders)} folder. "
            "Go to a project, name one with --repo PATH, or make an example with: agentos demo"
        )


def written_folders(workflow: WorkflowMembers) -> tuple[str, ...]:
    """The folders that a run of this workflow writes to: a brief is moved when its issue is filed."""
    return (*WRITTEN_FOLDERS, *((ACTIVE, DONE) if ACTIVE in workflow.folders else ()))


def clean_finished(workflow: WorkflowMembers, items: ProjectItems, candidates: list[Candidate]) -> None:
    """Delete the checkpoints of items whose process died between finishing and cleaning up."""
    finished = {
        candidate.item.id: candidate.item.number
        for candidate in candidates
        if candidate.node == FINISHED or candidate.status is ItemStatus.APPROVED
    }
    items.clean_finished(
        {item: items.key(workflow.name, number) for item, number in finished.items()},
        lambda item: workflow.tidy(items.documents, finished[item]),
    )


def _with_checkpoint(candidate: Candidate, notes: Mapping[str, str]) -> Candidate:
    state = review_state(notes)
    decision = state.decision if state else None
    return replace(
        candidate,
        node=notes.get("node"),
        waits=state is not None and decision is None,
        decided=decision.action.past_tense if decision else "",
        edited=state is not None and state.edited is not None,
        is_outdated=notes.get("digest") not in (None, candidate.item.digest),
    )
