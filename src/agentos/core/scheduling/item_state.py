"""The state of one item in a run: attempts, clocks, tokens, and when its worker is overdue."""

from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome, Usage, failed_transient
from agentos.core.scheduling.auto_workers import WorkerTime

EXIT_TIMEOUT = 5.0  # seconds a worker may take to exit after its report
START_TIMEOUT = 60.0  # seconds a process may take to start before that counts as the item's time
CUT_MARGIN = 10.0  # seconds a worker may take to report that it has cut a call
STALLED = "STALLED"
QUIET_LEVELS = (("SLOW", 1), (STALLED, 4))  # level, multiple of the usual silence
NEVER = float("inf")
RETRYABLE = (Ending.FAILED, Ending.HELD_BY_OTHER_RUN, Ending.FAILED_IN_OTHER_RUN)


class ItemState:
    """An item's attempts and clocks.

    The item's clock is active, waiting for a key, or stopped. Only active time counts towards the timeout, and
    every attempt has the whole timeout. `usage`, `spent` and `waited` add up over all attempts.
    """

    def __init__(self, item: str) -> None:
        self.id = item
        self.attempts = 0
        self.attempt_offset = 0  # attempts that do not count towards the retry limit
        self.usage = Usage()
        self.node = ""
        self.not_before = 0.0
        self.waited = 0.0
        self.spent = 0.0
        self._attempt_seconds = 0.0
        self.reported: Outcome | None = None
        self.ended: Outcome | None = None
        self.timed_out = False
        self.suspended = False
        self.withdrawn = False
        self.timeout: float | None = None  # seconds; None: the run's
        self._exit_by: float | None = None
        self._active_since: float | None = None
        self._waiting_since: float | None = None
        self._active_at = 0.0
        self._reported_at: float | None = None
        self._quiet_level = 0
        self._held_checks = 0
        self._call_timeout = 0.0  # seconds that the call in flight may be silent
        self._call_since: float | None = None
        self._seconds_in_calls = 0.0

    @property
    def tries(self) -> int:
        """Attempts that count towards the retry limit: those since the start, or since a person requeued the item."""
        return self.attempts - self.attempt_offset

    # The clock: active, waiting for a key, or stopped.

    def start(self, now: float) -> None:
        self.attempts += 1
        self.reported = self._reported_at = None
        self.timed_out = self.suspended = False
        self._exit_by = None
        self._call_timeout = 0.0
        self._call_since = None
        self._attempt_seconds = 0.0
        # The clock starts with the process, or after START_TIMEOUT if none appears.
        self._active_since = now + START_TIMEOUT
        self.record_activity(now)

    def start_wait(self, now: float) -> None:
        self.stop_clock(now)
        self._waiting_since = now

    def end_wait(self, now: float, call_timeout: float = 0.0) -> float:
        """Note that the lease was granted; return the seconds waited. The call may be silent for `call_timeout`."""
        self._call_timeout = call_timeout
        self._call_since = now if call_timeout else None
        waited = now - self._waiting_since if self._waiting_since is not None else 0.0
        self.resume_clock(now)
        return waited

    def count_as_wait(self, seconds: float, now: float) -> None:
        """Count the last `seconds` as waiting for a key: they were spent waiting at a shared gateway."""
        if self._active_since is not None:
            given_back = min(seconds, max(0.0, now - self._active_since))
            self._active_since += given_back
            self.waited += given_back
        self._call_since = None

    def end_call(self, now: float) -> None:
        self._call_timeout = 0.0
        if self._call_since is not None:
            self._seconds_in_calls += now - self._call_since
            self._call_since = None

    def worker_time(self, now: float) -> WorkerTime:
        """What the workers of this item have spent so far."""
        active = 0.0 if self._active_since is None else max(0.0, now - self._active_since)
        calling = 0.0 if self._call_since is None else now - self._call_since
        waiting = 0.0 if self._waiting_since is None else now - self._waiting_since
        return WorkerTime(self.spent + active, self._seconds_in_calls + calling, self.waited + waiting)

    def resume_clock(self, now: float) -> None:
        self.stop_clock(now)
        self._active_since = now
        self.record_activity(now)

    def stop_clock(self, now: float) -> None:
        if self._active_since is not None:
            self._attempt_seconds += max(0.0, now - self._active_since)
            self.spent += max(0.0, now - self._active_since)
        if self._waiting_since is not None:
            self.waited += now - self._waiting_since
        self._active_since = self._waiting_since = None

    def resume(self, paused_since: float, now: float) -> None:
        """Note the end of a pause, which does not count as waiting for a key."""
        if self._waiting_since is not None:
            self._waiting_since += now - max(paused_since, self._waiting_since)

    def shift_clocks(self, seconds: float) -> None:
        """Shift all clocks: the run was suspended (Ctrl-Z) for `seconds`, which do not count."""
        self._active_at += seconds
        self._active_since = _later(self._active_since, seconds)
        self._waiting_since = _later(self._waiting_since, seconds)
        self._call_since = _later(self._call_since, seconds)
        self._reported_at = _later(self._reported_at, seconds)
        self._exit_by = _later(self._exit_by, seconds)

    # Requests.

    def suspend(self, exit_by: float) -> None:
        """Note that the worker was asked to exit for a pause; it is killed unless it has exited by `exit_by`."""
        self.suspended, self._exit_by = True, exit_by

    def withdraw(self, exit_by: float) -> None:
        """Note that the worker was asked to exit for good; it is killed unless it has exited by `exit_by`."""
        self.withdrawn = True
        self.suspend(exit_by)

    def try_again(self, now: float) -> bool:
        """Make a failed item ready to run with all its retries; return False if it did not fail."""
        if self.ended is None or self.ended.ending not in RETRYABLE:
            return False
        self.ended, self.not_before, self._held_checks = None, now, 0
        self.attempt_offset = self.attempts
        return True

    # Events of its worker.

    def handle(
        self,
        event: events.WorkerStarted
        | events.LineWritten
        | events.NodeStarted
        | events.NodeFinished
        | events.CallProgress
        | events.WorkerReported
        | events.KeyWaitStarted
        | events.KeyWaitEnded,
        now: float,
    ) -> None:
        self.record_activity(now)
        if isinstance(event, events.WorkerStarted):
            self._active_since = now
        if isinstance(event, events.NodeStarted):
            self.node = event.node
        if isinstance(event, events.WorkerReported):
            self.reported, self._reported_at = event.outcome, now
        if isinstance(event, events.KeyWaitStarted):
            self.start_wait(now)
        if isinstance(event, events.KeyWaitEnded):
            self.end_wait(now)

    def record_activity(self, now: float) -> None:
        self._active_at = now
        self._quiet_level = 0

    def outcome(self, cause: str, stopping: bool) -> Outcome:
        """The outcome of an attempt whose worker exited with this `cause`, even if it did not report one."""
        if self.timed_out:
            return failed_transient("ran out of time (--timeout)")
        if self.reported:
            return self.reported
        if stopping:
            return Outcome(Ending.INTERRUPTED)
        return failed_transient(f"its worker ended without an outcome: {cause}")

    def record_held(self) -> bool:
        """Note that another run holds the item; return whether to check once more."""
        self._held_checks += 1
        return self._held_checks < 2

    # Deadlines.

    def deadline(self, timeout: float, usual: float) -> float | None:
        if self._reported_at is not None:
            return self._reported_at + EXIT_TIMEOUT
        due = NEVER if self._exit_by is None or self.reported else self._exit_by
        if self._active_since is not None:
            if not self.timed_out and not self.reported:
                due = min(due, self._active_since + timeout - self._attempt_seconds)
            if self._quiet_level < len(QUIET_LEVELS):
                due = min(due, self._quiet_at(usual))
        return None if due == NEVER else due

    def expire_deadlines(self, timeout: float, now: float) -> bool:
        """Clear the deadlines that have passed; return whether one of them requires killing the worker.

        These are the item's timeout, EXIT_TIMEOUT after the worker's report, and the deadline of a pause.
        """
        if self._active_since is not None and not self.timed_out and not self.reported:
            self.timed_out = now >= self._active_since + timeout - self._attempt_seconds
            if self.timed_out:
                return True
        if self._reported_at is not None and now >= self._reported_at + EXIT_TIMEOUT:
            self._reported_at = None
            return True
        if self._exit_by is not None and not self.reported and now >= self._exit_by:
            self._exit_by = None
            return True
        return False

    def next_quiet_event(self, usual: float, now: float) -> events.ItemQuiet | None:
        """The event for a worker that has been silent for a multiple of the `usual` time; once per level."""
        if (
            self._active_since is None
            or self._quiet_level >= len(QUIET_LEVELS)
            or now < self._quiet_at(usual)
        ):
            return None
        name, _ = QUIET_LEVELS[self._quiet_level]
        self._quiet_level += 1
        return events.ItemQuiet(self.id, name, self.node, now - self._active_at)

    def _quiet_at(self, usual: float) -> float:
        """A call in flight is slow after the usual time, and stalled only when its worker should have cut it."""
        name, multiple = QUIET_LEVELS[self._quiet_level]
        patience = self._call_timeout + CUT_MARGIN if self._call_timeout and name == STALLED else 0.0
        return self._active_at + max(usual * multiple, patience)


def _later(moment: float | None, seconds: float) -> float | None:
    return None if moment is None else moment + seconds
