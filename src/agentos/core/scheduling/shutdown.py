"""The early end of a run: by a signal, a limit, or because no key can serve it."""

from dataclasses import dataclass

from agentos.core.protocol.events import ShutdownStarted

STOP_TIMEOUT = 4.0  # seconds a worker has to exit by itself before it is killed
EXIT_CODES = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}


@dataclass(slots=True)
class Shutdown:
    """True once the run is stopping. A signal that follows a limit replaces the reason and restarts the timeout."""

    reason: str = ""
    detail: str = ""
    exit_code: int | None = None
    kill_at: float | None = None

    def __bool__(self) -> bool:
        return bool(self.reason)

    @property
    def is_by_signal(self) -> bool:
        return self.reason in EXIT_CODES

    def begin(self, started: ShutdownStarted, exit_code: int, now: float) -> None:
        self.reason, self.detail, self.exit_code = started.reason, started.detail, exit_code
        self.kill_at = now + STOP_TIMEOUT

    def postpone(self, seconds: float) -> None:
        """The run was suspended for so long; that time does not count."""
        self.kill_at = None if self.kill_at is None else self.kill_at + seconds

    def is_overdue(self, now: float) -> bool:
        return self.kill_at is not None and now >= self.kill_at
