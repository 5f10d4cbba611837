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


def called(word: str, ids: Iterable[str]) -> str | None:
    """The id that is meant: in whatever case it was typed, or by its number where only one has that."""
    known = list(ids)
    if word in known:
        return word
    by_case = [one for one in known if one.casefold() == word.casefold()]
    by_number = [one for one in known if one.rpartition("-")[2] == word]
    return next(iter(by_case or (by_number if len(by_number) == 1 else [])), None)


def is_safe_id(text: str) -> bool:
    """Whether the text can name an item, and so a file, without leading anywhere else."""
    return _ID.fullmatch(text) is not None
