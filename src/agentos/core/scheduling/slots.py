"""Worker slots, each with its record of crashes."""

from dataclasses import dataclass

from agentos.core.backoff import Jitter, backoff

CRASHES_BEFORE_COOLDOWN = 3
COOLDOWNS_BEFORE_RETIREMENT = 5


@dataclass(slots=True)
class Slot:
    """Runs one item at a time. Three crashes in a row start a cooldown; a sixth cooldown retires the slot."""

    number: int
    item: str | None = None
    crashes: int = 0
    cooldowns: int = 0
    cooldown_until: float = 0.0
    retired: bool = False

    def record_success(self) -> None:
        self.crashes = 0

    def record_crash(self, now: float, jitter: Jitter) -> float | None:
        """Seconds of the cooldown that this crash starts, or None. Check `retired` afterwards."""
        self.crashes += 1
        if self.crashes < CRASHES_BEFORE_COOLDOWN:
            return None
        self.crashes = 0
        self.cooldowns += 1
        self.retired = self.cooldowns > COOLDOWNS_BEFORE_RETIREMENT
        seconds = backoff(self.cooldowns, jitter)
        self.cooldown_until = now + seconds
        return seconds

    def free(self, now: float) -> bool:
        return self.item is None and not self.retired and now >= self.cooldown_until
