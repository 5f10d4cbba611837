"""One document to be made: its identity."""

import re
from dataclasses import dataclass

_ID = re.compile(r"(?![.-])[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True)
class Item:
    """`source` is relative to the project; `digest` is of the source's text."""

    id: str
    workflow: str
    number: int
    title: str
    source: str
    digest: str = ""
    labels: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def is_safe_id(text: str) -> bool:
    """Whether the text can name an item, and so a file, without leading anywhere else."""
    return _ID.fullmatch(text) is not None
