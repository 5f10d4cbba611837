"""Items: what they are, how they are named, and everything known about them before a run."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

_ID = re.compile(r"(?![.-])[A-Za-z0-9._-]{1,64}")
_PREFIX = r"[A-Za-z][A-Za-z0-9_]*"
_RANGE = re.compile(
    rf"(?:(?P<prefix>{_PREFIX})-)?(?P<first>[0-9]{{1,18}})(?:\.\.|-)(?:{_PREFIX}-)?(?P<last>[0-9]{{1,18}})"
)


@dataclass(frozen=True, slots=True)
class Column:
    """A value of an item that comes from a table."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Item:
    """One unit of work. `source` is a path relative to the project, `digest` a hash of its text.

    `columns` are the values of its row, if the items come from a table. `source_tokens` estimates how many tokens its
    text adds to every prompt; 0 if that is unknown.
    """

    id: str
    workflow: str
    number: int
    title: str
    source: str
    digest: str = ""
    labels: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    source_tokens: int = 0


def matches(item: str, word: str) -> bool:
    """Whether the word names the item, ignoring case: by its id, its number, or its id without the prefix."""
    name = item.casefold()
    return bool(word) and word.casefold() in (name, name.rpartition("-")[2], name.partition("-")[2])


@dataclass(frozen=True, slots=True)
class ItemRange:
    """Consecutive numbers, as in `40-45` or `LLD-40..45`; without a prefix, of items of any prefix."""

    prefix: str
    first: int
    last: int

    def includes(self, item: str, number: int) -> bool:
        same_prefix = not self.prefix or self.prefix.casefold() == item.rpartition("-")[0].casefold()
        return same_prefix and self.first <= number <= self.last


def parse_range(word: str) -> ItemRange | None:
    """Parse a range; None if the word is not one. Does not check that the first number is the lower one."""
    found = _RANGE.fullmatch(word)
    return ItemRange(found["prefix"] or "", int(found["first"]), int(found["last"])) if found else None


def resolve_item(word: str, items: Iterable[str]) -> str | None:
    """The item that the word names; None if there is none, or more than one."""
    known = list(items)
    found = [word] if word in known else [item for item in known if matches(item, word)]
    return found[0] if len(found) == 1 else None


def is_safe_id(text: str) -> bool:
    """Whether the text is a valid item id, which is also safe as part of a file name."""
    return _ID.fullmatch(text) is not None


FINISHED = "finished"
"""The node of a checkpoint whose item is done."""


class ItemStatus(StrEnum):
    """The status of an item, derived from the files on disk."""

    PENDING = "pending"
    APPROVED = "approved"
    UNCHANGED = "needs revision"
    CHANGED = "changed since it needed revision"
    OUTDATED = "changed since it was done"
    CLOSED = "closed"


class SkipReason(StrEnum):
    """Why a file in a folder of items is not an item."""

    NO_NUMBER = "no number"
    UNREADABLE = "no readable number"
    SUFFIX = "not named .md"
    SUBFOLDER = "in a subfolder"
    FOLDER = "a folder, not a file"


SKIP_FIXES = {
    SkipReason.NO_NUMBER: "give {them} a number: agentos number",
    SkipReason.UNREADABLE: "correct {them}: agentos doctor",
    SkipReason.SUFFIX: "rename {them} to end in .md",
    SkipReason.SUBFOLDER: "to use {them}, move {them} out of there",
    SkipReason.FOLDER: "rename {them} not to end in .md",
}


class Gone(StrEnum):
    """Why something that is no longer an item is named in a plan."""

    PARKED = "parked"
    FAILED = "failed in the last run"


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that looks like an item but is not one.

    `source` is its path in the project, `problems` what is wrong with it, `number` the one that its name suggests.
    """

    source: str
    reason: SkipReason
    problems: tuple[str, ...] = ()
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """An item with everything that decides whether it runs.

    node: where its checkpoint resumes.
    waits: whether it is parked for a person; `decided` is that person's decision, `edited` whether they changed the draft.
    twins: other files that claim its number.
    problems: why it will fail.
    is_closed: it runs only if it is named; `status` is then that of its document.
    is_outdated: its text has changed since its checkpoint, so that it starts over.
    changed_since_approval: its approved document was written for an earlier text.
    ignored: which fields of its front matter are probably misspelt.
    has_unknown_labels: its front matter cannot be read.
    gone: there is no such item any more.
    """

    item: Item
    status: ItemStatus
    node: str | None = None
    waits: bool = False
    decided: str = ""
    edited: bool = False
    failed_before: bool = False
    held_by: str | None = None
    twins: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    is_closed: bool = False
    is_outdated: bool = False
    changed_since_approval: bool = False
    ignored: tuple[str, ...] = ()
    has_unknown_labels: bool = False
    gone: Gone | None = None
