"""Results of a parallel execution."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class WorkflowResult:
    """The result of one item.

    - `item_id`: the id that `item_id_func` gave.
    - `success`, `error`: whether the item succeeded, and the error's text if it did not.
    - `duration`: seconds.
    - `metadata`: what the worker function returned. A mapping is kept as it is, any other value is under `"result"`.
    """

    item_id: str
    success: bool
    error: str | None = None
    duration: float = 0.0
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ProgressStats:
    """Counts the items of an execution. `completed` includes both the successful and the failed ones."""

    total: int = 0
    completed: int = 0
    failed: int = 0
    success_count: int = 0
    start_time: float = field(default_factory=time.time)

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return max(0.0, time.time() - self.start_time)

    @property
    def completion_rate(self) -> float:
        """Completed items in per cent of the total; 0.0 if there are no items."""
        return 100.0 * self.completed / self.total if self.total else 0.0


class ParallelResult(NamedTuple):
    """The statistics of an execution, and one result per item in the order of the items."""

    stats: ProgressStats
    results: list[WorkflowResult]
