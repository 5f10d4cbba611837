"""One document to be made: its identity."""

import re
from collections.abc import Iterable
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


def matches(item: str, word: str) -> bool:
    """Whether the item is meant: by its id, in whatever case it was typed, or by its number."""
    return word.casefold() in (item.casefold(), item.rpartition("-")[2])


def resolve_item(word: str, items: Iterable[str]) -> str | None:
    """The one that is meant; None where that is nobody, or where several answer to it."""
    known = list(items)
    meant = [word] if word in known else [item for item in known if matches(item, word)]
    return meant[0] if len(meant) == 1 else None


def is_safe_id(text: str) -> bool:
    """Whether the text can name an item, and so a file, without leading anywhere else."""
    return _ID.fullmatch(text) is not None
