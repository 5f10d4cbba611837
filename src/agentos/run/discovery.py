"""What there is to do: a workflow's items, with all that decides whether they run."""

from dataclasses import replace
from pathlib import Path

from agentos.core.errors import PreflightError
from agentos.core.planning.gates import ReviewState
from agentos.core.planning.plan import FINISHED, Candidate, ItemStatus, merge_duplicates
from agentos.storage.checkpoints import delete_checkpoint, leftovers, read_notes
from agentos.storage.files import ProjectFolder
from agentos.storage.home import Home, checkpoint_name
from agentos.storage.locks import Holder, ItemLocks
from agentos.storage.review_notes import read_parked
from agentos.storage.runs import failed_before
from agentos.workflows.base import Workflow


def discover(workflow: Workflow, project: Path, home: Home) -> list[Candidate]:
    """Reads only."""
    check_project(workflow, project)
    found = merge_duplicates(workflow.candidates(project))
    held = ItemLocks(project).held()
    failed = failed_before(home.runs, workflow.name, project)
    kept = {path.name: path for path in home.checkpoints(project).glob("*.db")}
    return [
        _marked(
            _as_kept(candidate, kept.get(checkpoint_name(workflow.name, candidate.item.number))), failed, held
        )
        for candidate in found
    ]


def check_project(workflow: Workflow, project: Path) -> None:
    """A project is a folder that has a place for the workflow's items."""
    if workflow.folders and not any((project / folder).is_dir() for folder in workflow.folders):
        raise PreflightError(
            f"no project here: {project} has no {' or '.join(workflow.folders)} folder. "
            "Go to a project, name one with --repo PATH, or make an example with: agentos demo"
        )


def clean_finished(workflow: Workflow, project: Path, home: Home, candidates: list[Candidate]) -> None:
    """Clears up after items that were finished by a process that died right after."""
    locks, folder = ItemLocks(project), home.checkpoints(project)
    left = leftovers(folder)
    for candidate in candidates:
        number = candidate.item.number
        over = candidate.node == FINISHED or candidate.status is ItemStatus.APPROVED
        path = folder / checkpoint_name(workflow.name, number)
        if not over or path.name not in left:
            continue
        locks.prepare()
        if lock := locks.acquire(candidate.item.id, Holder(0, "sweep")):
            try:
                workflow.tidy(ProjectFolder(project), number)
                delete_checkpoint(path)
            finally:
                lock.release()


def _as_kept(candidate: Candidate, path: Path | None) -> Candidate:
    """With what its checkpoint says, if there is one."""
    if path is None:
        return candidate
    node, parked = read_notes(path).get("node"), read_parked(path)
    return replace(candidate, node=node, waits=_waits(parked), decided=_decided(parked))


def _marked(candidate: Candidate, failed: set[str], held: dict[str, Holder | None]) -> Candidate:
    """With what other runs say of it."""
    item = candidate.item.id
    if item not in failed and item not in held:
        return candidate
    return replace(
        candidate, failed_before=item in failed, held_by=_words(held[item]) if item in held else None
    )


def _waits(parked: ReviewState | None) -> bool:
    return parked is not None and parked.decision is None


def _decided(parked: ReviewState | None) -> str:
    """How a person decided at the gate that the item stood at last."""
    return parked.decision.action.past_tense if parked and parked.decision else ""


def _words(holder: Holder | None) -> str:
    return f"process {holder.pid}, run {holder.run}" if holder else "another process"
