"""Scripted faults of the offline server: what goes wrong, at which call, and how a script is written in JSON."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any


class FaultKind(StrEnum):
    MINUTE_QUOTA = "429-minute"
    DAY_QUOTA = "429-day"
    BOTH_QUOTAS = "429-both"
    BARE_QUOTA = "429-bare"
    RETRY_AFTER = "429-retry-after"
    INPUT_QUOTA = "429-tokens"
    RAMP = "429-ramp"
    SPEND_LIMIT = "429-spend"
    INSUFFICIENT_QUOTA = "429-insufficient"
    NO_CREDIT = "429-credit"
    OWN_SPEND_LIMIT = "400-spend"
    KEY_INVALID = "400-key"
    BAD_REQUEST = "400"
    UNAUTHENTICATED = "401"
    UNPAID = "402"
    FORBIDDEN = "403"
    NOT_FOUND = "404"
    INTERNAL = "500"
    BAD_GATEWAY = "502"
    UNAVAILABLE = "503"
    TIMEOUT = "504"
    OVERLOADED = "529"
    OVERLOADED_STREAM = "stream-overload"
    RESET = "reset"
    RESET_MIDWAY = "reset-midway"
    HANG = "hang"
    SLOW = "slow"
    DRIP = "drip"
    CUT = "cut"
    HTML = "html"
    HUGE = "huge"
    HOSTILE = "hostile"
    BLOCKED = "blocked"
    SAFETY = "safety"
    MAX_TOKENS = "max-tokens"


@dataclass(frozen=True, slots=True)
class Match:
    """The calls that a fault applies to: all given conditions must hold. `times` None means without end."""

    nth: int | None = None
    nth_of_key: int | None = None
    every: int | None = None
    key: str | None = None
    role: str | None = None
    matching: str | None = None
    times: int | None = 1


@dataclass(frozen=True, slots=True)
class Fault:
    kind: FaultKind
    match: Match = Match()
    seconds: float = 5.0
    retry_delay: float | None = None
    retry_after: str | None = None
    limit: int | None = None
    megabytes: float = 1.0
    payload: str = "all"
    message: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class CallInfo:
    """What a fault's conditions are compared with."""

    key: str
    role: str
    text: str


class FaultScript:
    """Picks the fault of each generating call: the first one that matches, as often as its `times` allows."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self._faults = list(faults)
        self._left = [fault.match.times for fault in self._faults]
        self._calls = 0
        self._calls_by_key: Counter[str] = Counter()

    def add(self, faults: Iterable[Fault]) -> None:
        """Appends faults; the call numbers keep counting."""
        added = list(faults)
        self._faults += added
        self._left += [fault.match.times for fault in added]

    def clear(self) -> None:
        self._faults, self._left = [], []

    def next_fault(self, call: CallInfo) -> Fault | None:
        self._calls += 1
        self._calls_by_key[call.key] += 1
        for index, fault in enumerate(self._faults):
            left = self._left[index]
            if left != 0 and self._matches(fault.match, call):
                self._left[index] = None if left is None else left - 1
                return fault
        return None

    def _matches(self, match: Match, call: CallInfo) -> bool:
        return all(
            (
                match.nth in (None, self._calls),
                match.nth_of_key in (None, self._calls_by_key[call.key]),
                match.every is None or self._calls % match.every == 0,
                match.key in (None, call.key),
                match.role in (None, call.role),
                match.matching is None or re.search(match.matching, call.text) is not None,
            )
        )


MATCH_FIELDS = tuple(field.name for field in fields(Match))
SHAPE_FIELDS = tuple(field.name for field in fields(Fault) if field.name not in ("kind", "match"))
INTEGER_FIELDS = ("nth", "nth_of_key", "every", "times", "limit")
NUMBER_FIELDS = ("seconds", "retry_delay", "megabytes")


def parse_faults(text: str) -> tuple[Fault, ...]:
    """Reads one JSON object or a list of them; raises ValueError for anything else."""
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise ValueError(f"invalid faults: expected a JSON object or a list of them: {error}") from error
    return tuple(_fault(entry) for entry in (parsed if isinstance(parsed, list) else [parsed]))


def _fault(entry: object) -> Fault:
    if not isinstance(entry, dict):
        raise ValueError(f'invalid fault {entry!r}: expected an object such as {{"kind": "503"}}')
    _check_names(entry)
    for name, value in entry.items():
        _check_value(name, value)
    match = Match(**{name: entry[name] for name in MATCH_FIELDS if name in entry})
    return Fault(
        FaultKind(entry["kind"]),
        match,
        **{name: entry[name] for name in SHAPE_FIELDS if name in entry},
    )


def _check_names(entry: dict[str, Any]) -> None:
    unknown = sorted(set(entry) - {"kind", *MATCH_FIELDS, *SHAPE_FIELDS})
    if unknown:
        raise ValueError(
            f"unknown field in a fault: {', '.join(unknown)}; expected: {', '.join((*MATCH_FIELDS, *SHAPE_FIELDS))}"
        )
    if entry.get("kind") not in set(FaultKind):
        raise ValueError(f"invalid kind of fault {entry.get('kind')!r}: choose one of {', '.join(FaultKind)}")


def _check_value(name: str, value: object) -> None:
    if name in INTEGER_FIELDS:
        expected: tuple[type, ...] = (int,)
    else:
        expected = (int, float) if name in NUMBER_FIELDS else (str,)
    unlimited = value is None and name == "times"
    if not unlimited and (isinstance(value, bool) or not isinstance(value, expected)):
        raise ValueError(f"invalid {name} in a fault: {value!r} is not of type {expected[-1].__name__}")
    if name == "every" and value == 0:
        raise ValueError("invalid every in a fault: 0 is less than 1")
    if name == "retry_after" and not str(value).isprintable():
        raise ValueError(
            f"invalid retry_after in a fault: {value!r} contains characters that a header cannot have"
        )
    if name == "matching":
        try:
            re.compile(str(value))
        except re.error as error:
            raise ValueError(
                f"invalid matching in a fault: {value!r} is not a regular expression: {error}"
            ) from error
