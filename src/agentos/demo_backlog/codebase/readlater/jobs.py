"""Work that is done after the request: a queue in memory."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class JobQueue:
    """Jobs by the time at which they are due, in seconds."""

    _jobs: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _count: int = 0

    def enqueue(self, due: float, job: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._jobs, (due, self._count, job))

    def run_due(self, now: float) -> int:
        """Run every job that is due; returns how many there were."""
        done = 0
        while self._jobs and self._jobs[0][0] <= now:
            heapq.heappop(self._jobs)[2]()
            done += 1
        return done
