"""Items: the units of work of a run, and how people refer to them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_ID = re.compile(r"(?![.-])[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True)
class Item:
    """One unit of work. `source` is a path relative to the project, `digest` a hash of its text."""

    id: str
    workflow: str
    number: int
    title: str
    source: str
    digest: str = ""
    labels: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def matches(item: str, word: str) -> bool:
    """Whether the word names the item: by its id, ignoring case, or by its number."""
    return word.casefold() in (item.casefold(), item.rpartition("-")[2])


def resolve_item(word: str, items: Iterable[str]) -> str | None:
    """The item that the word names; None if there is none, or more than one."""
    known = list(items)
    found = [word] if word in known else [item for item in known if matches(item, word)]
    return found[0] if len(found) == 1 else None


def is_safe_id(text: str) -> bool:
    """Whether the text is a valid item id, which is also safe as part of a file name."""
    return _ID.fullmatch(text) is not None
