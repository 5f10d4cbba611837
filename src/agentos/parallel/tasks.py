"""Tasks for coroutines: taken by whoever is free, tried again while health allows."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from agentos.parallel.recovery import AdaptiveBackoff, WorkerHealth

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class TaskResult(Generic[T, R]):
    """The task, and its result or its last error; `exhausted` when no worker could try it any more."""

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
    place: int
    task: T
    attempts: int = 0
    error: str = ""


class _Backlog(Generic[T, R]):
    """What is left, what is under way, and what came of the rest; used by one event loop."""

    def __init__(self, tasks: Iterable[T]) -> None:
        self._waiting = deque(_TaskAttempt(place, task) for place, task in enumerate(tasks))
        self._under_way = 0
        self._results: dict[int, TaskResult[T, R]] = {}
        self._change = asyncio.Condition()

    def __len__(self) -> int:
        return len(self._waiting)

    async def take(self) -> _TaskAttempt[T] | None:
        """The next one; None when none is left and nobody at work could put one back."""
        async with self._change:
            await self._change.wait_for(lambda: self._waiting or not self._under_way)
            if not self._waiting:
                return None
            self._under_way += 1
            return self._waiting.popleft()

    async def put_back(self, one: _TaskAttempt[T]) -> None:
        async with self._change:
            self._under_way -= 1
            self._waiting.append(one)
            self._change.notify_all()

    async def settle(self, one: _TaskAttempt[T], result: TaskResult[T, R]) -> None:
        async with self._change:
            self._under_way -= 1
            self._results[one.place] = result
            self._change.notify_all()

    def results(self) -> list[TaskResult[T, R]]:
        """In the order of the tasks; what nobody was left to try is exhausted."""
        for one in self._waiting:
            self._results[one.place] = TaskResult(
                one.task, None, one.error or "no worker is left", one.attempts, recovery_exhausted=True
            )
        return [self._results[place] for place in sorted(self._results)]


async def run_parallel(
    tasks: Iterable[T], task_processor: Callable[[T], Awaitable[R]], max_workers: int = 3
) -> list[TaskResult[T, R]]:
    """Every task once through the processor, so many at a time; a result for each, in their order."""
    if max_workers < 1:
        raise ValueError(f"max_workers = {max_workers}: expected at least 1")
    backlog: _Backlog[T, R] = _Backlog(tasks)
    workers = [_work(backlog, task_processor) for _ in range(min(max_workers, len(backlog)))]
    async with asyncio.TaskGroup() as group:
        for worker in workers:
            group.create_task(worker)
    return backlog.results()


async def _work(backlog: _Backlog[T, R], process: Callable[[T], Awaitable[R]]) -> None:
    """One worker, until nothing is left or it has failed too often."""
    health, waits = WorkerHealth(), AdaptiveBackoff(base_delay=0.05, max_delay=1.0)
    while not health.is_exhausted and (one := await backlog.take()) is not None:
        one.attempts += 1
        try:
            result = await process(one.task)
        except Exception as error:  # whatever a task fails with is its result
            one.error = f"{type(error).__name__}: {error}"
            tired = health.record_failure() is not None
            await backlog.put_back(one)
            if tired and not health.is_exhausted:
                waits.record_failure()
                await waits.wait()
        else:
            health.record_success()
            waits.record_success()
            await backlog.settle(one, TaskResult(one.task, result, attempts=one.attempts))
