"""How long to wait after failures, and how many to bear with."""

import asyncio
import math
import random
import time

from agentos.core.backoff import backoff
from agentos.core.scheduling.slots import FAILURES, RECOVERIES, Slot


class AdaptiveBackoff:
    """A wait that doubles with every failure in a row, and is over with a success."""

    def __init__(self, base_delay: float = 1.0, max_delay: float = 60.0, jitter_factor: float = 0.1) -> None:
        values = (base_delay, max_delay, jitter_factor)
        if not all(math.isfinite(value) and value >= 0 for value in values):
            raise ValueError(f"base_delay, max_delay, jitter_factor = {values}: expected numbers from 0 on")
        self._base, self._cap, self._spread = values
        self._failures = 0

    def get_delay(self) -> float:
        """What is to be waited now; nothing while nothing has failed."""
        if not self._failures:
            return 0.0
        return min(backoff(self._failures, random.random, self._base, self._cap, self._spread), self._cap)

    def record_failure(self) -> None:
        self._failures += 1

    def record_success(self) -> None:
        self._failures = 0

    async def wait(self) -> float:
        """Waits, and says how long that was."""
        seconds = self.get_delay()
        await asyncio.sleep(seconds)
        return seconds


class WorkerHealth:
    """Three failures in a row call for a recovery; after five of those the worker is given up."""

    max_failures, max_recoveries = FAILURES, RECOVERIES

    def __init__(self) -> None:
        self._slot = Slot(0)

    def record_success(self) -> None:
        self._slot.record_success()

    def record_failure(self) -> float | None:
        """How long to rest, if this was one failure too many."""
        return self._slot.record_crash(time.monotonic(), random.random)

    @property
    def failures(self) -> int:
        """In a row, since the last success or recovery."""
        return self._slot.failures

    @property
    def recoveries(self) -> int:
        return min(self._slot.recoveries, RECOVERIES)

    @property
    def is_healthy(self) -> bool:
        """Whether it is neither resting nor given up."""
        return self._slot.free(time.monotonic())

    @property
    def is_exhausted(self) -> bool:
        return self._slot.retired
