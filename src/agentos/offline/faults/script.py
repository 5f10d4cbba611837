"""Picks the scripted fault, if any, that a call meets."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


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
    """Every condition that is given has to hold; `times` is how often, None without end."""

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
    key: str
    role: str
    text: str


class FaultScript:
    """Counts the generate calls from 1; the first fault that matches is met, and used up once."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self._faults = list(faults)
        self._left = [fault.match.times for fault in self._faults]
        self._calls = 0
        self._calls_of: Counter[str] = Counter()

    def add(self, faults: Iterable[Fault]) -> None:
        """New faults stand last; counting goes on."""
        added = list(faults)
        self._faults += added
        self._left += [fault.match.times for fault in added]

    def clear(self) -> None:
        self._faults, self._left = [], []

    def meet(self, sighting: CallInfo) -> Fault | None:
        self._calls += 1
        self._calls_of[sighting.key] += 1
        for index, fault in enumerate(self._faults):
            if self._left[index] != 0 and self._holds(fault.match, sighting):
                self._use(index)
                return fault
        return None

    def _use(self, index: int) -> None:
        left = self._left[index]
        self._left[index] = None if left is None else left - 1

    def _holds(self, match: Match, sighting: CallInfo) -> bool:
        return all(
            (
                match.nth in (None, self._calls),
                match.nth_of_key in (None, self._calls_of[sighting.key]),
                match.every is None or self._calls % match.every == 0,
                match.key in (None, sighting.key),
                match.role in (None, sighting.role),
                match.matching is None or re.search(match.matching, sighting.text) is not None,
            )
        )
