"""The words that a program is called with, for each of its items."""

import hashlib
import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentos.core.planning.items import Item, is_safe_id
from agentos.core.text.secrets import Secret

LONGEST_ID = 64
TRY_AGAIN = 75
"""EX_TEMPFAIL of sysexits.h: a program that says so may succeed when it is tried again."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_PLACE = re.compile(r"\{\{(\w*)\}\}|\{(\w*)\}")
PLACES = ("item", "id", "name", "stem", "folder", "number")


@dataclass(frozen=True, slots=True)
class Variable:
    """One of the program's environment; it may be a secret."""

    name: str
    value: Secret


@dataclass(frozen=True, slots=True)
class ExecTask:
    """All that a worker is told: run this, for this item, and remember here that it is done."""

    run: str
    coordinator: int
    item: Item
    command: tuple[str, ...]
    place: str
    records: str
    variables: tuple[Variable, ...] = ()
    retry_codes: tuple[int, ...] = (TRY_AGAIN,)
    retry_any: bool = False
    redo: bool = False


def workflow_name(words: Sequence[str]) -> str:
    """The same command has the same name, whatever its items are."""
    return f"exec-{_digest(chr(0).join(words))[:8]}"


def record_name(source: str) -> str:
    """What an item's records are called: by the item itself, since its id depends on what else there is."""
    return _digest(source)[:32]


def program_items(sources: Iterable[str], workflow: str) -> list[Item]:
    """An item for each source, in order; the same one twice is one."""
    unique = list(dict.fromkeys(sources))
    ids = _ids(unique)
    return [
        Item(id=ids[source], workflow=workflow, number=number, title=source, source=source)
        for number, source in enumerate(unique, 1)
    ]


def render_command(words: Sequence[str], item: Item) -> tuple[str, ...]:
    """The command for one item; without any placeholder, the item is its last word."""
    if not any(_has_place(word) for word in words):
        words = [*words, "{item}"]
    values = _values(item)
    return tuple(_PLACE.sub(lambda found: _filled(found, values), word) for word in words)


def _has_place(word: str) -> bool:
    return any(found[2] in ("", *PLACES) for found in _PLACE.finditer(word) if found[2] is not None)


def _filled(found: "re.Match[str]", values: dict[str, str]) -> str:
    """`{item}` is the item, `{{item}}` is `{item}`; braces around anything else stay."""
    if found[1] is not None:
        return found[0][1:-1] if found[1] in values else found[0]
    return values.get(found[2], found[0])


def _values(item: Item) -> dict[str, str]:
    folder, name = posixpath.split(item.source)
    stem = posixpath.splitext(name)[0]
    return {
        "": item.source,
        "item": item.source,
        "id": item.id,
        "name": name,
        "stem": stem,
        "folder": folder or ".",
        "number": str(item.number),
    }


def _ids(sources: list[str]) -> dict[str, str]:
    """By the file's name without its ending; those that would be alike, by their whole path."""
    short = {
        source: _safe(posixpath.splitext(posixpath.basename(source.rstrip("/")))[0]) for source in sources
    }
    counts = _counted(short.values())
    ids: dict[str, str] = {}
    taken: set[str] = set()
    for source in sources:
        wanted = short[source] if counts[short[source].casefold()] == 1 else _safe(source)
        ids[source] = _free(wanted, taken)
        taken.add(ids[source].casefold())
    return ids


def _counted(names: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name.casefold()] = counts.get(name.casefold(), 0) + 1
    return counts


def _free(wanted: str, taken: set[str]) -> str:
    """Log files are called by it, also where upper and lower case are one."""
    number, name = 1, wanted
    while name.casefold() in taken:
        number += 1
        name = f"{wanted[: LONGEST_ID - 8]}-{number}"
    return name


def _safe(text: str) -> str:
    found = _UNSAFE.sub("-", text).strip("-.")[:LONGEST_ID].rstrip("-.")
    if found.casefold() == "coordinator":  # the name of another speaker
        found = f"item-{found}"
    return found if is_safe_id(found) else f"item-{_digest(text)[:8]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
