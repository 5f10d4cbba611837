"""The health of the places that workers run in."""

from dataclasses import dataclass

from agentos.core.backoff import Jitter, backoff

FAILURES = 3
RECOVERIES = 5


@dataclass(slots=True)
class Slot:
    """Three failures in a row that are not the items' own rest it; after five rests it is retired."""

    number: int
    item: str | None = None
    failures: int = 0
    recoveries: int = 0
    cooldown_until: float = 0.0
    retired: bool = False

    def record_success(self) -> None:
        self.failures = 0

    def record_crash(self, now: float, jitter: Jitter) -> float | None:
        """How long the slot rests now, if this was one failure too many; see `retired` after it."""
        self.failures += 1
        if self.failures < FAILURES:
            return None
        self.failures = 0
        self.recoveries += 1
        self.retired = self.recoveries > RECOVERIES
        seconds = backoff(self.recoveries, jitter)
        self.cooldown_until = now + seconds
        return seconds

    def free(self, now: float) -> bool:
        return self.item is None and not self.retired and now >= self.cooldown_until
