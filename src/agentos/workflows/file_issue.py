"""Files an issue as a Markdown file in the project, exactly once, and gives numbers to files that have none."""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from agentos.core.planning.items import SkippedFile, SkipReason
from agentos.core.protocol.ports import Documents
from agentos.core.text.line_assembler import one_line
from agentos.regular_files import UnsafeFile, read_start
from agentos.workflows.markdown import (
    MARKDOWN_SUFFIXES,
    file_number,
    markdown_files,
    read_page,
    skipped_files,
    split_front_matter,
    suggested_number,
)

ISSUES = "issues"
_MAX_FRONT_MATTER = 16_384  # bytes searched for the origin marker
_LABELS_SECTION = re.compile(r"^#{1,6}[ \t]+Labels[ \t]*$\n+([^\n#]+)", re.MULTILINE | re.IGNORECASE)
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._/-]{0,48}")
_HEADING = re.compile(r"^#[ \t]+(\S.*)$", re.MULTILINE)
TRIES = 100


@dataclass(frozen=True, slots=True)
class Filing:
    """An issue to file. `origin` marks the issue, so that a second attempt finds it instead of filing it again."""

    origin: str
    slug: str
    labels: tuple[str, ...]
    body: str


def file_issue(project: Path, documents: Documents, filing: Filing) -> str:
    """The path of the issue's file: the existing one with this origin, or a new one."""
    with documents.numbering():
        for path in markdown_files(project / ISSUES, project):
            if _read_origin(path, project) == filing.origin:
                return f"{ISSUES}/{path.name}"
        number = max(taken_numbers(project), default=0) + 1
        name = f"{ISSUES}/{number:03}-{filing.slug}.md"
        documents.write(name, _issue_text(number, filing).encode())
        return name


def slug_of(file_name: str) -> str:
    """A safe file name derived from the brief's own. Model output never chooses a path."""
    stem = Path(file_name).stem
    if file_number(Path(file_name)) is not None:
        stem = stem.lstrip("0123456789")
    return re.sub(r"[^a-z0-9]+", "-", stem.casefold()).strip("-")[:60] or "issue"


def without_front_matter(body: str) -> str:
    return split_front_matter(body)[1]


def title_of(body: str, fallback: str) -> str:
    heading = _HEADING.search(body)
    return one_line(heading[1]).strip() if heading else fallback


def labels_of(filing: Filing) -> list[str]:
    """The brief's labels, then those in the draft's Labels section; anything that is not a label is dropped."""
    section = _LABELS_SECTION.search(without_front_matter(filing.body))
    parts = re.split(r"[,;]", section[1]) if section else []
    drafted = [label for part in parts if _LABEL.fullmatch(label := part.strip(" -*`\t"))]
    return list(dict.fromkeys([*filing.labels, *drafted]))


def taken_numbers(project: Path) -> set[int]:
    """The numbers that a new issue cannot have."""
    paths = markdown_files(project / ISSUES, project)
    found = {number for path in paths for number in (file_number(path), read_page(path, project).number)}
    return {number for number in found if number is not None} | _design_numbers(project)


def _design_numbers(project: Path) -> set[int]:
    """Numbers that have a design, even if its issue is gone: a new issue must not inherit that design."""
    found = (
        re.fullmatch(r"LLD-(\d{1,9})\.md", path.name) for path in (project / "docs/lld").glob("*/LLD-*.md")
    )
    return {int(name[1]) for name in found if name}


def _read_origin(path: Path, project: Path) -> str | None:
    """The origin marker. Searched line by line, so that it is found even in invalid front matter."""
    try:
        text = read_start(path, project, _MAX_FRONT_MATTER).decode("utf-8", "replace")
    except (OSError, UnsafeFile):
        return None
    lines = text.split("\n---", 1)[0].splitlines()
    found = [line.partition(":")[2].strip() for line in lines if line.startswith("origin:")]
    return found[0].strip('"') if found else None


def _issue_text(number: int, filing: Filing) -> str:
    body = without_front_matter(filing.body)
    front_matter = {
        "number": number,
        "title": title_of(body, filing.slug),
        "state": "open",
        "labels": labels_of(filing),
        "origin": filing.origin,
    }
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in front_matter.items()]
    return "\n".join(["---", *lines, "---", "", body.strip("\n"), ""])


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
    """Plan the next free numbers in the order of the file names; a name such as LLD-107 keeps its number if that is free.

    Writes nothing. Numbers of existing issues and designs are never reused. A file with unreadable front matter is left
    alone, since its number may be in there.
    """
    taken = taken_numbers(project)
    renamings, left = [], []
    aside = (SkipReason.SUBFOLDER, SkipReason.FOLDER)
    skipped = [file for file in skipped_files(project, ISSUES) if file.reason not in aside]
    pages = [(file, read_page(project / file.source, project)) for file in skipped]
    # A file may have a number already, or be named after one, which no other file may get first.
    reserved = (page.number or suggested_number(page.path) or 0 for _, page in pages)
    highest = max([0, *taken, *reserved])
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
    """Rename the files, under the same lock as filing an issue. Can be repeated after a crash."""
    with documents.numbering():
        plan = plan_numbers(documents.root)
        for renaming in plan.renamings:
            documents.move(renaming.source, renaming.target)
        return plan


def _renaming(path: Path, own: int | None, taken: set[int], first: int) -> Renaming | None:
    """None if no unique number is possible: the file's number belongs to another file too, or all numbers are used up."""
    if own is not None:
        names = [(own, f"{path.stem}.md")] if own not in taken else []
    else:
        suggested = suggested_number(path)
        numbers = [suggested] if suggested and suggested not in taken else range(first, first + TRIES)
        # Before a stem that begins with digits, a number can look like part of a date: 2027-11-16 is one, 2027_11-16 not.
        names = [
            (number, f"{number:03}{separator}{path.stem}.md") for number in numbers for separator in "-_"
        ]
    for number, name in names:
        has_number = own is not None or file_number(Path(name)) == number
        if has_number and not os.path.lexists(path.parent / name):
            return Renaming(f"{ISSUES}/{path.name}", f"{ISSUES}/{name}", number)
    return None
