"""The stopping of a run before its work is done."""

from dataclasses import dataclass

from agentos.core.protocol.events import ShutdownStarted

KILL_AFTER = 4.0
"""Seconds that a worker has to leave by itself."""
EXIT_CODES = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}


@dataclass(slots=True)
class Shutdown:
    """True once it has begun; a signal after a limit gives another reason, and more time."""

    reason: str = ""
    detail: str = ""
    exit_code: int | None = None
    kill_at: float | None = None

    def __bool__(self) -> bool:
        return bool(self.reason)

    @property
    def is_by_signal(self) -> bool:
        return self.reason in EXIT_CODES

    def begin(self, began: ShutdownStarted, exit_code: int, now: float) -> None:
        self.reason, self.detail, self.exit_code = began.reason, began.detail, exit_code
        self.kill_at = now + KILL_AFTER

    def postpone(self, seconds: float) -> None:
        """So long everything stood still."""
        self.kill_at = None if self.kill_at is None else self.kill_at + seconds

    def is_overdue(self, now: float) -> bool:
        return self.kill_at is not None and now >= self.kill_at
