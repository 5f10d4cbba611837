"""What waits in a project for a person's decision."""

import contextlib
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agentos.config.settings import current_folder
from agentos.core.errors import ItemError, NothingMatches, UsageError
from agentos.core.planning.gates import GateRequest, ParkedItem, ReviewDecision, ReviewState
from agentos.core.planning.items import matches
from agentos.core.text.line_assembler import clean, one_line
from agentos.outputs.resume_command import resume_command
from agentos.storage.checkpoints import read_notes
from agentos.storage.files import ProjectFolder
from agentos.storage.home import Home
from agentos.storage.locks import Holder, ItemLocks
from agentos.storage.review_notes import read_parked, write_decision, write_edit
from agentos.storage.runs import is_alive, load_run_stats
from agentos.workflows.registry import find_workflow


@dataclass(frozen=True, slots=True)
class ReviewContext:
    """Where to look: a project, its home, and a database that was named by hand."""

    project: Path
    home: Home
    database: Path | None = None


@dataclass(frozen=True, slots=True)
class PendingReview:
    """An item that is parked, or that a person has decided on and no run has finished yet."""

    state: ReviewState
    database: Path

    @property
    def parked_item(self) -> ParkedItem:
        return self.state.parked_item

    @property
    def request(self) -> GateRequest:
        return self.parked_item.request


@dataclass(frozen=True, slots=True)
class LineagePage:
    """One file of the lineage, each line safe for a terminal."""

    name: str
    heading: str
    text: str


def pending_reviews(place: ReviewContext) -> list[PendingReview]:
    """Every item with a parking in its checkpoint, those without a decision first."""
    folder = place.home.checkpoints(place.project)
    files = [place.database] if place.database else sorted(folder.glob("*.db"))
    found = [PendingReview(parked, file) for file in files if (parked := read_parked(file))]
    return sorted(found, key=_order)


def find(place: ReviewContext, item: str) -> PendingReview:
    """The item that waits under this id or number."""
    found = pending_reviews(place)
    same = [one for one in found if matches(one.parked_item.item, item)]
    if len(same) == 1:
        return same[0]
    if same:
        raise UsageError(f"{item} is {' or '.join(one.parked_item.item for one in same)}: say which")
    open_ones = [one.parked_item.item for one in found if one.state.decision is None]
    raise NothingMatches(
        f"{one_line(item)} does not wait for a person in {place.project}; "
        f"those that do: {', '.join(open_ones) or 'none'}"
    )


def lineage(place: ReviewContext, parking: ParkedItem) -> list[LineagePage]:
    documents = ProjectFolder(place.project)
    names = [name for name in documents.names(parking.lineage) if name.endswith(".md")]
    return [_page(documents, f"{parking.lineage}/{name}") for name in names]


def draft_text(place: ReviewContext, one: PendingReview) -> str:
    """The draft as it stands: as a person has edited it, else as it was written."""
    if one.state.edited is not None:
        return one.state.edited
    try:
        return ProjectFolder(place.project).read(one.request.draft).decode()
    except (OSError, UnicodeDecodeError) as error:
        cure = f"put it back, or start over with: {one.parked_item.workflow}-workflow --fresh {one.parked_item.item}"
        raise ItemError(f"{one.request.draft} cannot be read ({error}); {cure}") from error


def keep_edit(place: ReviewContext, one: PendingReview, draft: str) -> None:
    with _undecided(place, one):
        write_edit(one.database, one.request.number, draft)


def decide(place: ReviewContext, one: PendingReview, decision: ReviewDecision) -> None:
    """Writes the decision down; the item goes on when a run takes it up."""
    with _undecided(place, one):
        write_decision(one.database, one.request.number, decision)


def following_command(place: ReviewContext, parking: ParkedItem) -> str:
    """What lets the item go on: the command of the run that parked it."""
    started = load_run_stats(place.home.runs / parking.run).started
    if started is None:
        return command_for(place, f"{parking.workflow}-workflow {parking.item.rpartition('-')[2]}")
    return resume_command(started, current_folder())


def command_for(place: ReviewContext, command: str) -> str:
    """A command on this project, as it is typed here."""
    here = str(place.project) == current_folder()
    return command if here else f"{command} --repo {shlex.quote(str(place.project))}"


def still_runs(place: ReviewContext, parking: ParkedItem) -> bool:
    """Whether the run that parked the item is under way, and so takes it up by itself."""
    return is_alive(place.home.runs / parking.run)


@contextlib.contextmanager
def _undecided(place: ReviewContext, one: PendingReview) -> Iterator[None]:
    """Holds the item's lock, so that no run takes the item up while its decision is written."""
    item, locks = one.parked_item.item, ItemLocks(place.project)
    locks.prepare()
    lock = locks.acquire(item, Holder(os.getpid(), "review"))
    if lock is None:
        raise UsageError(f"{item} is being worked on just now; see how far it is: agentos status")
    try:
        now = read_parked(one.database)
        if now is None or now.parked_item.request != one.request or now.decision is not None:
            again = command_for(place, f"agentos review {item}")
            raise NothingMatches(f"{item} was decided on meanwhile; see where it is: {again}")
        _check_source(place, one)
        yield
    finally:
        lock.release()


def _check_source(place: ReviewContext, one: PendingReview) -> None:
    """A decision on a draft of another text would be for nothing: its item starts over."""
    parking, noted = one.parked_item, read_notes(one.database).get("digest")
    for candidate in find_workflow(parking.workflow, place.project).candidates(place.project):
        item = candidate.item
        if item.id == parking.item and item.digest != noted:
            raise UsageError(
                f"{item.source} has changed since {parking.item} was parked, so this draft is of another text; "
                f"start over with: {command_for(place, f'{parking.workflow}-workflow {item.number} --fresh')}"
            )


def _order(one: PendingReview) -> tuple[bool, str, int]:
    prefix, _, number = one.parked_item.item.rpartition("-")
    return one.state.decision is not None, prefix, int(number) if number.isdigit() else 0


def _page(documents: ProjectFolder, path: str) -> LineagePage:
    try:
        text = documents.read(path).decode("utf-8", "replace")
    except OSError as error:
        text = f"(cannot be read: {error.strerror})"
    lines = [clean(line) for line in text.splitlines()]
    heading = next((line.lstrip("# ") for line in lines if line.strip()), "")
    return LineagePage(path.rpartition("/")[2], heading, "\n".join(lines))
