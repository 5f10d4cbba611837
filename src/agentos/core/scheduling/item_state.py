"""One item on its way through a run: tries, time, tokens."""

from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome, Usage, failed_transient

LINGER = 5.0
LONGEST_START = 60.0
LEVELS = (("SLOW", 1), ("STALLED", 4))
NEVER = float("inf")


class ItemState:
    """Time spent waiting for a key does not count against the item; each try has its own time."""

    def __init__(self, item: str) -> None:
        self.item = item
        self.attempts = 0
        self.attempt_offset = 0
        self.usage = Usage()
        self.node = ""
        self.not_before = 0.0
        self.waited = 0.0
        self.spent = 0.0
        self._tried = 0.0
        self.reported: Outcome | None = None
        self.ended: Outcome | None = None
        self.timed_out = False
        self.suspended = False
        self._leave_by: float | None = None
        self._active_since: float | None = None
        self._waiting_since: float | None = None
        self._alive_at = 0.0
        self._reported_at: float | None = None
        self._level = 0
        self._looks_elsewhere = 0

    @property
    def tries(self) -> int:
        """Attempts since the item began, or since a person let it go on."""
        return self.attempts - self.attempt_offset

    # Its clock: active, waiting for a key, or stopped.

    def start(self, now: float) -> None:
        self.attempts += 1
        self.reported = self._reported_at = None
        self.timed_out = self.suspended = False
        self._leave_by = None
        self._tried = 0.0
        # Until its process is there it is the machine's time, not the item's; but not for ever.
        self._active_since = now + LONGEST_START
        self.record_activity(now)

    def start_wait(self, now: float) -> None:
        self.stop_clock(now)
        self._waiting_since = now

    def end_wait(self, now: float) -> float:
        """A key has come; says how long that took."""
        waited = now - self._waiting_since if self._waiting_since is not None else 0.0
        self.resume_clock(now)
        return waited

    def resume_clock(self, now: float) -> None:
        self.stop_clock(now)
        self._active_since = now
        self.record_activity(now)

    def stop_clock(self, now: float) -> None:
        if self._active_since is not None:
            self._tried += max(0.0, now - self._active_since)
            self.spent += max(0.0, now - self._active_since)
        if self._waiting_since is not None:
            self.waited += now - self._waiting_since
        self._active_since = self._waiting_since = None

    def resume(self, paused_since: float, now: float) -> None:
        """What it waited for meanwhile was a person, not a key."""
        if self._waiting_since is not None:
            self._waiting_since += now - max(paused_since, self._waiting_since)

    def shift_clocks(self, seconds: float) -> None:
        """So long everything stood still: it is as if that time had not been."""
        self._alive_at += seconds
        self._active_since = _later(self._active_since, seconds)
        self._waiting_since = _later(self._waiting_since, seconds)
        self._reported_at = _later(self._reported_at, seconds)
        self._leave_by = _later(self._leave_by, seconds)

    # What people want of it.

    def suspend(self, leave_by: float) -> None:
        """Its worker was told to end, for a pause; after that moment it is killed."""
        self.suspended, self._leave_by = True, leave_by

    def try_again(self, now: float) -> bool:
        """As often again as at first; no for what has a verdict or waits for a person."""
        if self.ended is None or self.ended.ending not in (Ending.FAILED, Ending.ELSEWHERE):
            return False
        self.ended, self.not_before, self._looks_elsewhere = None, now, 0
        self.attempt_offset = self.attempts
        return True

    # What its worker says.

    def handle(
        self,
        event: events.WorkerStarted
        | events.LineWritten
        | events.NodeStarted
        | events.NodeFinished
        | events.WorkerReported,
        now: float,
    ) -> None:
        self.record_activity(now)
        if isinstance(event, events.WorkerStarted):
            self._active_since = now
        if isinstance(event, events.NodeStarted):
            self.node = event.node
        if isinstance(event, events.WorkerReported):
            self.reported, self._reported_at = event.outcome, now

    def record_activity(self, now: float) -> None:
        self._alive_at = now
        self._level = 0

    def outcome(self, cause: str, stopping: bool) -> Outcome:
        """What this attempt came to, whatever the worker managed to say."""
        if self.timed_out:
            return failed_transient("ran out of time (--timeout)")
        if self.reported:
            return self.reported
        if stopping:
            return Outcome(Ending.INTERRUPTED)
        return failed_transient(f"its worker ended without an outcome: {cause}")

    def look_again_elsewhere(self) -> bool:
        """Whether an item that another run holds is worth one more look."""
        self._looks_elsewhere += 1
        return self._looks_elsewhere < 2

    # What is due.

    def deadline(self, timeout: float, usual: float) -> float | None:
        if self._reported_at is not None:
            return self._reported_at + LINGER
        due = NEVER if self._leave_by is None or self.reported else self._leave_by
        if self._active_since is not None:
            if not self.timed_out and not self.reported:
                due = min(due, self._active_since + timeout - self._tried)
            if self._level < len(LEVELS):
                due = min(due, self._quiet_at(usual))
        return None if due == NEVER else due

    def is_over_time(self, timeout: float, now: float) -> bool:
        if self._active_since is None or self.timed_out or self.reported:
            return False
        return now >= self._active_since + timeout - self._tried

    def lingers(self, now: float) -> bool:
        """Whether the worker has said its last word long ago, and is still there; said once."""
        if self._reported_at is None or now < self._reported_at + LINGER:
            return False
        self._reported_at = None
        return True

    def overstays(self, now: float) -> bool:
        """Whether the worker was to leave for a pause, and is still there; said once."""
        if self._leave_by is None or self.reported or now < self._leave_by:
            return False
        self._leave_by = None
        return True

    def silence_event(self, usual: float, now: float) -> events.ItemQuiet | None:
        """The news that there was no sign of life for a multiple of the usual time; once a level."""
        if self._active_since is None or self._level >= len(LEVELS) or now < self._quiet_at(usual):
            return None
        name, _ = LEVELS[self._level]
        self._level += 1
        return events.ItemQuiet(self.item, name, self.node, now - self._alive_at)

    def _quiet_at(self, usual: float) -> float:
        return self._alive_at + usual * LEVELS[self._level][1]


def _later(moment: float | None, seconds: float) -> float | None:
    return None if moment is None else moment + seconds
