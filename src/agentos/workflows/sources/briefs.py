"""The briefs of a project and their permanent numbers."""

import os
from collections.abc import Iterable
from pathlib import Path

from agentos.core.protocol.ports import Documents
from agentos.workflows.sources.markdown import file_number, markdown_files

ACTIVE, DONE = "ideas/active", "ideas/done"
NUMBERS = "ideas/.numbers"


def brief_numbers(project: Path) -> dict[str, int]:
    """File name -> number: the one in the name, else the one assigned earlier, else the next free one."""
    names = [path.name for folder in (ACTIVE, DONE) for path in markdown_files(project / folder)]
    numbers = {name: number for name in names if (number := file_number(Path(name))) is not None}
    assigned = _assigned(project)
    numbers |= {name: assigned[name] for name in names if name not in numbers and name in assigned}
    next_free = max([0, *numbers.values(), *assigned.values()]) + 1
    for name in sorted(set(names) - set(numbers)):
        numbers[name] = next_free
        next_free += 1
    return numbers


def assign_numbers(documents: Documents) -> None:
    """Records the numbers of briefs whose names have none: one file per number, never rewritten."""
    with documents.numbering():
        assigned = _assigned(documents.root)
        for name, number in brief_numbers(documents.root).items():
            if file_number(Path(name)) is None and name not in assigned:
                documents.write(f"{NUMBERS}/{number}", os.fsencode(name) + b"\n")


def _assigned(project: Path) -> dict[str, int]:
    folder = project / NUMBERS
    files: Iterable[Path] = folder.iterdir() if folder.is_dir() else ()
    numbered = [path for path in files if path.name.isascii() and path.name.isdigit()]
    return {os.fsdecode(path.read_bytes().removesuffix(b"\n")): int(path.name) for path in numbered}
