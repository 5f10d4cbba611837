"""Exponential backoff with jitter, for every retry in the package."""

from collections.abc import Callable

BASE = 1.0  # seconds
CAP = 60.0  # seconds
JITTER = 0.25  # share of the delay, added or subtracted
MAX_DOUBLINGS = 30

Jitter = Callable[[], float]
"""Returns a random number from 0 to 1; tests pass a constant."""


def backoff(
    failures: int, jitter: Jitter, base: float = BASE, cap: float = CAP, spread: float = JITTER
) -> float:
    """Return the delay in seconds after this many consecutive failures.

    The delay starts at `base`, doubles with every failure up to `cap`, and is then varied by `spread` so
    that clients which failed together do not retry together: 1, 2, 4, ... 60 seconds, each ±25 %.
    """
    delay = min(base * 2.0 ** min(max(failures, 1) - 1, MAX_DOUBLINGS), cap)
    return delay * (1 + spread * (2 * jitter() - 1))
