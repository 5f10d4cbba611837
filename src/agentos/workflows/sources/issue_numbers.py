"""Gives numbers to the issues of a project that have none, by renaming their files."""

import os
from dataclasses import dataclass
from pathlib import Path

from agentos.core.planning.plan import SkippedFile
from agentos.core.protocol.ports import Documents
from agentos.workflows.file_issue import ISSUES, taken_numbers
from agentos.workflows.sources.markdown import MARKDOWN_SUFFIXES, file_number, read_page, skipped_files

TRIES = 100


@dataclass(frozen=True, slots=True)
class Renaming:
    """A file that gets a number; both paths are relative to the project."""

    source: str
    target: str
    number: int


@dataclass(frozen=True, slots=True)
class NumberingPlan:
    """Which files get a number, and which are left for a person to correct."""

    renamings: tuple[Renaming, ...] = ()
    left: tuple[SkippedFile, ...] = ()


def plan_numbers(project: Path) -> NumberingPlan:
    """Next free numbers in the order of the names. Reads only.

    A number is never one that an issue or a design has. A file whose front matter cannot be read is left alone, since
    its number may be in there.
    """
    taken = taken_numbers(project)
    renamings, left = [], []
    pages = [(file, read_page(project / file.source, project)) for file in skipped_files(project, ISSUES)]
    # A file that is not named .md may have a number of its own, which no other may get first.
    highest = max([0, *taken, *(page.number for _, page in pages if page.number is not None)])
    for file, page in pages:
        path = page.path
        is_usable = page.is_readable and path.suffix.casefold() in MARKDOWN_SUFFIXES
        renaming = _renaming(path, page.number, taken, highest + 1) if is_usable else None
        if renaming is None:
            left.append(file)
        else:
            taken.add(renaming.number)
            highest = max(highest, renaming.number)
            renamings.append(renaming)
    return NumberingPlan(tuple(renamings), tuple(left))


def number_issues(documents: Documents) -> NumberingPlan:
    """Renames the files, under the lock that filing an issue takes too. Can be repeated after a crash."""
    with documents.numbering():
        plan = plan_numbers(documents.root)
        for renaming in plan.renamings:
            documents.move(renaming.source, renaming.target)
        return plan


def _renaming(path: Path, own: int | None, taken: set[int], first: int) -> Renaming | None:
    """None if no name can give the file a number of its own: it has one that another file has too, or all are used up."""
    if own is not None:
        names = [(own, f"{path.stem}.md")] if own not in taken else []
    else:
        # A few tries: before a stem that begins with digits, a number can look like a part of a date.
        names = [(number, f"{number:03}-{path.stem}.md") for number in range(first, first + TRIES)]
    for number, name in names:
        has_number = own is not None or file_number(Path(name)) == number
        if has_number and not os.path.lexists(path.parent / name):
            return Renaming(f"{ISSUES}/{path.name}", f"{ISSUES}/{name}", number)
    return None
