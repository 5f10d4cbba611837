"""The briefs of a project, each with a number that it keeps."""

import os
from collections.abc import Iterable
from pathlib import Path

from agentos.core.protocol.ports import Documents
from agentos.workflows.sources.markdown import file_number, markdown_files

ACTIVE, DONE = "ideas/active", "ideas/done"
NUMBERS = "ideas/.numbers"


def brief_numbers(project: Path) -> dict[str, int]:
    """File name -> number: the name's own, else the one given once, else the next free one."""
    names = [path.name for folder in (ACTIVE, DONE) for path in markdown_files(project / folder)]
    numbers = {name: number for name in names if (number := file_number(Path(name))) is not None}
    given = _given(project)
    numbers |= {name: given[name] for name in names if name not in numbers and name in given}
    following = max([0, *numbers.values(), *given.values()]) + 1
    for name in sorted(set(names) - set(numbers)):
        numbers[name] = following
        following += 1
    return numbers


def give_numbers(documents: Documents) -> None:
    """Writes down the numbers of briefs that have none in their name: one file each, never rewritten."""
    with documents.numbering():
        given = _given(documents.root)
        for name, number in brief_numbers(documents.root).items():
            if file_number(Path(name)) is None and name not in given:
                documents.write(f"{NUMBERS}/{number}", os.fsencode(name) + b"\n")


def _given(project: Path) -> dict[str, int]:
    folder = project / NUMBERS
    files: Iterable[Path] = folder.iterdir() if folder.is_dir() else ()
    numbered = [path for path in files if path.name.isascii() and path.name.isdigit()]
    return {os.fsdecode(path.read_bytes().removesuffix(b"\n")): int(path.name) for path in numbered}
