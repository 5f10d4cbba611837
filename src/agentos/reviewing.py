"""What waits in a project for a person's decision."""

import contextlib
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agentos.core.errors import ItemError, NothingMatches, UsageError
from agentos.core.gates import Asked, Decision, Parked, Parking
from agentos.core.items import answers_to
from agentos.core.lines import clean, one_line
from agentos.outputs.again import go_on
from agentos.settings import current_folder
from agentos.storage.checkpoints import read_notes
from agentos.storage.gates import read_parked, write_decision, write_edit
from agentos.storage.layout import Home
from agentos.storage.locks import Holder, ItemLocks
from agentos.storage.project import ProjectFolder
from agentos.storage.runs import is_alive, tally_of
from agentos.workflows.registry import find_workflow


@dataclass(frozen=True, slots=True)
class Place:
    """Where to look: a project, its home, and a database that was named by hand."""

    project: Path
    home: Home
    database: Path | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """An item that is parked, or that a person has decided on and no run has finished yet."""

    parked: Parked
    database: Path

    @property
    def parking(self) -> Parking:
        return self.parked.parking

    @property
    def asked(self) -> Asked:
        return self.parking.asked


@dataclass(frozen=True, slots=True)
class Page:
    """One file of the lineage, each line safe for a terminal."""

    name: str
    heading: str
    text: str


def waiting(place: Place) -> list[Waiting]:
    """Every item with a parking in its checkpoint, those without a decision first."""
    folder = place.home.checkpoints(place.project)
    files = [place.database] if place.database else sorted(folder.glob("*.db"))
    found = [Waiting(parked, file) for file in files if (parked := read_parked(file))]
    return sorted(found, key=_order)


def find(place: Place, item: str) -> Waiting:
    """The item that waits under this id or number."""
    found = waiting(place)
    same = [one for one in found if answers_to(one.parking.item, item)]
    if len(same) == 1:
        return same[0]
    if same:
        raise UsageError(f"{item} is {' or '.join(one.parking.item for one in same)}: say which")
    open_ones = [one.parking.item for one in found if one.parked.decision is None]
    raise NothingMatches(
        f"{one_line(item)} does not wait for a person in {place.project}; "
        f"those that do: {', '.join(open_ones) or 'none'}"
    )


def lineage(place: Place, parking: Parking) -> list[Page]:
    documents = ProjectFolder(place.project)
    names = [name for name in documents.names(parking.lineage) if name.endswith(".md")]
    return [_page(documents, f"{parking.lineage}/{name}") for name in names]


def draft_text(place: Place, one: Waiting) -> str:
    """The draft as it stands: as a person has edited it, else as it was written."""
    if one.parked.edited is not None:
        return one.parked.edited
    try:
        return ProjectFolder(place.project).read(one.asked.draft).decode()
    except (OSError, UnicodeDecodeError) as error:
        cure = f"put it back, or start over with: {one.parking.workflow}-workflow --fresh {one.parking.item}"
        raise ItemError(f"{one.asked.draft} cannot be read ({error}); {cure}") from error


def keep_edit(place: Place, one: Waiting, draft: str) -> None:
    with _undecided(place, one):
        write_edit(one.database, one.asked.number, draft)


def decide(place: Place, one: Waiting, decision: Decision) -> None:
    """Writes the decision down; the item goes on when a run takes it up."""
    with _undecided(place, one):
        write_decision(one.database, one.asked.number, decision)


def following_command(place: Place, parking: Parking) -> str:
    """What lets the item go on: the command of the run that parked it."""
    started = tally_of(place.home.runs / parking.run).started
    if started is None:
        return there(place, f"{parking.workflow}-workflow {parking.item.rpartition('-')[2]}")
    return go_on(started, current_folder())


def there(place: Place, command: str) -> str:
    """A command on this project, as it is typed here."""
    here = str(place.project) == current_folder()
    return command if here else f"{command} --repo {shlex.quote(str(place.project))}"


def still_runs(place: Place, parking: Parking) -> bool:
    """Whether the run that parked the item is under way, and so takes it up by itself."""
    return is_alive(place.home.runs / parking.run)


@contextlib.contextmanager
def _undecided(place: Place, one: Waiting) -> Iterator[None]:
    """Holds the item's lock, so that no run takes the item up while its decision is written."""
    item, locks = one.parking.item, ItemLocks(place.project)
    locks.prepare()
    lock = locks.acquire(item, Holder(os.getpid(), "review"))
    if lock is None:
        raise UsageError(f"{item} is being worked on just now; see how far it is: agentos status")
    try:
        now = read_parked(one.database)
        if now is None or now.parking.asked != one.asked or now.decision is not None:
            again = there(place, f"agentos review {item}")
            raise NothingMatches(f"{item} was decided on meanwhile; see where it is: {again}")
        _check_source(place, one)
        yield
    finally:
        lock.release()


def _check_source(place: Place, one: Waiting) -> None:
    """A decision on a draft of another text would be for nothing: its item starts over."""
    parking, noted = one.parking, read_notes(one.database).get("digest")
    for candidate in find_workflow(parking.workflow, place.project).candidates(place.project):
        item = candidate.item
        if item.id == parking.item and item.digest != noted:
            raise UsageError(
                f"{item.source} has changed since {parking.item} was parked, so this draft is of another text; "
                f"start over with: {there(place, f'{parking.workflow}-workflow {item.number} --fresh')}"
            )


def _order(one: Waiting) -> tuple[bool, str, int]:
    prefix, _, number = one.parking.item.rpartition("-")
    return one.parked.decision is not None, prefix, int(number) if number.isdigit() else 0


def _page(documents: ProjectFolder, path: str) -> Page:
    try:
        text = documents.read(path).decode("utf-8", "replace")
    except OSError as error:
        text = f"(cannot be read: {error.strerror})"
    lines = [clean(line) for line in text.splitlines()]
    heading = next((line.lstrip("# ") for line in lines if line.strip()), "")
    return Page(path.rpartition("/")[2], heading, "\n".join(lines))
