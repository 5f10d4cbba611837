"""Reads scripted faults from JSON."""

import json
import re
from dataclasses import fields
from typing import Any

from agentos.offline.faults.script import Fault, FaultKind, Match

MATCHING = tuple(field.name for field in fields(Match))
SHAPING = tuple(field.name for field in fields(Fault) if field.name not in ("kind", "match"))
WHOLE_NUMBERS = ("nth", "nth_of_key", "every", "times", "limit")
NUMBERS = ("seconds", "retry_delay", "megabytes")


def parse_faults(text: str) -> tuple[Fault, ...]:
    """One object or a list of them; a ValueError says what is wrong with which."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"faults are JSON, an object or a list of objects: {error}") from error
    return tuple(_fault(entry) for entry in (found if isinstance(found, list) else [found]))


def _fault(entry: object) -> Fault:
    if not isinstance(entry, dict):
        raise ValueError(f'a fault is an object such as {{"kind": "503"}}, found: {entry!r}')
    _check_names(entry)
    for name, value in entry.items():
        _check_value(name, value)
    match = Match(**{name: entry[name] for name in MATCHING if name in entry})
    return Fault(
        FaultKind(entry["kind"]),
        match,
        **{name: entry[name] for name in SHAPING if name in entry},
    )


def _check_names(entry: dict[str, Any]) -> None:
    unknown = sorted(set(entry) - {"kind", *MATCHING, *SHAPING})
    if unknown:
        raise ValueError(
            f"unknown in a fault: {', '.join(unknown)}; known: {', '.join((*MATCHING, *SHAPING))}"
        )
    if entry.get("kind") not in set(FaultKind):
        raise ValueError(f"a fault's kind is one of {', '.join(FaultKind)}; found: {entry.get('kind')!r}")


def _check_value(name: str, value: object) -> None:
    if name in WHOLE_NUMBERS:
        expected: tuple[type, ...] = (int,)
    else:
        expected = (int, float) if name in NUMBERS else (str,)
    nothing = value is None and name == "times"
    if not nothing and (isinstance(value, bool) or not isinstance(value, expected)):
        raise ValueError(f"{name} in a fault is a {expected[-1].__name__}; found: {value!r}")
    if name == "every" and value == 0:
        raise ValueError("every in a fault is 1 or more; found: 0")
    if name == "retry_after" and not str(value).isprintable():
        raise ValueError(f"retry_after in a fault is sent as a header, so it is printable; found: {value!r}")
    if name == "matching":
        _check_pattern(str(value))


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(
            f"matching in a fault is a regular expression; {pattern!r} is none: {error}"
        ) from error
