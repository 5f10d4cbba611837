"""What became of items that were worked on side by side."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class WorkflowResult:
    """One item's end; `metadata` is what its worker gave back."""

    item_id: str
    success: bool
    error: str | None = None
    duration: float = 0.0
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ProgressStats:
    """How far a number of items has come; `completed` counts every item that ended."""

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
        """Per cent of the total; 0.0 when there is nothing."""
        return 100.0 * self.completed / self.total if self.total else 0.0
