"""Retry policies: exponential backoff, and health tracking of a worker."""

import asyncio
import math
import random
import time

from agentos.core.backoff import backoff
from agentos.core.scheduling.queue import COOLDOWNS_BEFORE_RETIREMENT, CRASHES_BEFORE_COOLDOWN, Slot


class AdaptiveBackoff:
    """Exponential backoff with jitter: the delay doubles with every consecutive failure; a success resets it.

        backoff = AdaptiveBackoff()
        while not await attempt():
            backoff.record_failure()
            await backoff.wait()  # about 1 s, 2 s, 4 s, ... up to 60 s

    Delays are in seconds. Each is varied at random by `jitter_factor`, so that several workers do not retry in step.
    """

    def __init__(self, base_delay: float = 1.0, max_delay: float = 60.0, jitter_factor: float = 0.1) -> None:
        values = (base_delay, max_delay, jitter_factor)
        if not all(math.isfinite(value) and value >= 0 for value in values):
            raise ValueError(
                f"invalid base_delay, max_delay, jitter_factor {values}: must be finite and not negative"
            )
        self._base, self._cap, self._jitter = values
        self._failures = 0

    def get_delay(self) -> float:
        """The current delay in seconds; 0.0 without a failure since the last success."""
        if not self._failures:
            return 0.0
        return min(backoff(self._failures, random.random, self._base, self._cap, self._jitter), self._cap)

    def record_failure(self) -> None:
        self._failures += 1

    def record_success(self) -> None:
        self._failures = 0

    async def wait(self) -> float:
        """Sleeps for the current delay and returns it."""
        seconds = self.get_delay()
        await asyncio.sleep(seconds)
        return seconds


class WorkerHealth:
    """Tracks whether a worker is healthy.

    After `max_failures` (3) consecutive failures the worker has to recover, and is unhealthy for a growing time. When it
    would have to recover for the sixth time (`max_recoveries` is 5), it is exhausted and must not be used again.
    """

    max_failures, max_recoveries = CRASHES_BEFORE_COOLDOWN, COOLDOWNS_BEFORE_RETIREMENT

    def __init__(self) -> None:
        self._slot = Slot(0)

    def record_success(self) -> None:
        self._slot.record_success()

    def record_failure(self) -> float | None:
        """The seconds to recover for, if this failure requires a recovery; otherwise None."""
        return self._slot.record_crash(time.monotonic(), random.random)

    @property
    def failures(self) -> int:
        """Consecutive failures since the last success or recovery."""
        return self._slot.crashes

    @property
    def recoveries(self) -> int:
        return min(self._slot.cooldowns, COOLDOWNS_BEFORE_RETIREMENT)

    @property
    def is_healthy(self) -> bool:
        """Whether the worker is neither recovering nor exhausted."""
        return self._slot.free(time.monotonic())

    @property
    def is_exhausted(self) -> bool:
        return self._slot.retired
