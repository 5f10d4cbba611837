"""Growing, jittered waits."""

from collections.abc import Callable

BASE = 1.0
CAP = 60.0
JITTER = 0.25

Jitter = Callable[[], float]
"""Gives a number from 0 to 1."""


def backoff(
    failures: int, jitter: Jitter, base: float = BASE, cap: float = CAP, spread: float = JITTER
) -> float:
    """The wait after so many failures in a row: doubled each time, capped, then spread."""
    grown = min(base * 2.0 ** min(max(failures, 1) - 1, 30), cap)
    return grown * (1 + spread * (2 * jitter() - 1))
