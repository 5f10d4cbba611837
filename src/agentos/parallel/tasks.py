"""Runs coroutines for many tasks, with backoff between retries and health tracking of the workers."""

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from agentos.core.backoff import backoff
from agentos.core.scheduling.queue import COOLDOWNS_BEFORE_RETIREMENT, CRASHES_BEFORE_COOLDOWN, Slot

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class TaskResult(Generic[T, R]):
    """A task with its result, or with its last error.

    - `attempts`: how often it was tried.
    - `recovery_exhausted`: it failed because every worker had failed too often to try it again.
    """

    task: T
    result: R | None = None
    error: str | None = None
    attempts: int = 1
    recovery_exhausted: bool = False

    @property
    def success(self) -> bool:
        return self.error is None


@dataclass(slots=True)
class _TaskAttempt(Generic[T]):
    index: int
    task: T
    attempts: int = 0
    error: str = ""


class _TaskQueue(Generic[T, R]):
    """The waiting tasks, the number in progress, and the results. Belongs to one event loop."""

    def __init__(self, tasks: Iterable[T]) -> None:
        self._waiting = deque(_TaskAttempt(index, task) for index, task in enumerate(tasks))
        self._in_progress = 0
        self._results: dict[int, TaskResult[T, R]] = {}
        self._change = asyncio.Condition()

    def __len__(self) -> int:
        return len(self._waiting)

    async def take(self) -> _TaskAttempt[T] | None:
        """Waits for the next task; None when none is left and none in progress could come back."""
        async with self._change:
            await self._change.wait_for(lambda: self._waiting or not self._in_progress)
            if not self._waiting:
                return None
            self._in_progress += 1
            return self._waiting.popleft()

    async def put_back(self, attempt: _TaskAttempt[T]) -> None:
        async with self._change:
            self._in_progress -= 1
            self._waiting.append(attempt)
            self._change.notify_all()

    async def finish(self, attempt: _TaskAttempt[T], result: TaskResult[T, R]) -> None:
        async with self._change:
            self._in_progress -= 1
            self._results[attempt.index] = result
            self._change.notify_all()

    def results(self) -> list[TaskResult[T, R]]:
        """In the order of the tasks. Tasks that no worker was left to try count as exhausted."""
        for attempt in self._waiting:
            self._results[attempt.index] = TaskResult(
                attempt.task,
                error=attempt.error or "no worker is left",
                attempts=attempt.attempts,
                recovery_exhausted=True,
            )
        return [result for _, result in sorted(self._results.items())]


async def run_parallel(
    tasks: Iterable[T], task_processor: Callable[[T], Awaitable[R]], max_workers: int = 3
) -> list[TaskResult[T, R]]:
    """Processes every task with up to `max_workers` coroutines at a time; returns the results in the tasks' order.

        results = await run_parallel(urls, fetch, max_workers=5)

    A task that raises goes back to the end of the queue and is tried again, possibly by another worker. A worker pauses
    after 3 consecutive failures, and gives up when it would have to pause for the sixth time (see `WorkerHealth`). When
    all workers have given up, the remaining tasks fail with `recovery_exhausted`.
    """
    if max_workers < 1:
        raise ValueError(f"invalid max_workers {max_workers}: must be at least 1")
    queue: _TaskQueue[T, R] = _TaskQueue(tasks)
    workers = [_run_worker(queue, task_processor) for _ in range(min(max_workers, len(queue)))]
    async with asyncio.TaskGroup() as group:
        for worker in workers:
            group.create_task(worker)
    return queue.results()


async def _run_worker(queue: _TaskQueue[T, R], process: Callable[[T], Awaitable[R]]) -> None:
    """Processes tasks until none is left or this worker is exhausted."""
    health, backoff = WorkerHealth(), AdaptiveBackoff(base_delay=0.05, max_delay=1.0)
    while not health.is_exhausted and (attempt := await queue.take()) is not None:
        attempt.attempts += 1
        try:
            result = await process(attempt.task)
        except Exception as error:  # any error of a task is its result
            attempt.error = f"{type(error).__name__}: {error}"
            must_recover = health.record_failure() is not None
            await queue.put_back(attempt)
            if must_recover and not health.is_exhausted:
                backoff.record_failure()
                await backoff.wait()
        else:
            health.record_success()
            backoff.record_success()
            await queue.finish(attempt, TaskResult(attempt.task, result, attempts=attempt.attempts))


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
