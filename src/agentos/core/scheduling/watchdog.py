"""The watchdog: kills workers that run too long, reports silent ones, and tracks items that wait for disk space."""

from agentos.core.protocol.commands import KillWorker, StepResult
from agentos.core.protocol.events import (
    DiskFreed,
    DiskFull,
    DiskWaitEnded,
    DiskWaitStarted,
    SchedulerEvent,
)
from agentos.core.scheduling.item_state import ItemState

MIN_USUAL_SILENCE = 30.0  # seconds
SILENCE_FACTOR = 4  # times the longest call


class Watchdog:
    """Enforces the deadlines of workers.

    A worker is killed when its attempt has used up `timeout` seconds of active time, or when it has not exited in time
    after its report or for a pause. It is reported as SLOW, then STALLED, when it has been silent for longer than the
    longest call so far would explain.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._usual_silence = MIN_USUAL_SILENCE

    def record_call(self, seconds: float) -> None:
        self._usual_silence = max(self._usual_silence, SILENCE_FACTOR * seconds)

    def enforce_deadlines(self, item: ItemState, step: StepResult, now: float) -> None:
        """Kill the worker or report that it is quiet, if it is time. Each deadline takes effect once."""
        due = self.deadline(item)
        if due is None or due > now:
            return
        if item.expire_deadlines(self._timeout if item.timeout is None else item.timeout, now):
            step.commands.append(KillWorker(item.id))
        if quiet := item.next_quiet_event(self._usual_silence, now):
            step.events.append(quiet)

    def deadline(self, item: ItemState) -> float | None:
        timeout = self._timeout if item.timeout is None else item.timeout
        return item.deadline(timeout, self._usual_silence)


class DiskWait:
    """The items that wait for disk space. Only the first and the last of the workers' reports are published."""

    def __init__(self) -> None:
        self._waiting: set[str] = set()
        self._since = 0.0
        self._path = ""

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def handle(self, event: DiskFull | DiskFreed, item: ItemState, now: float) -> list[SchedulerEvent]:
        item.record_activity(now)
        if isinstance(event, DiskFreed):
            item.resume_clock(now)
            return self.drop_item(event.item, now)
        item.stop_clock(now)
        is_first = not self._waiting
        self._waiting.add(event.item)
        if not is_first:
            return []
        self._since, self._path = now, event.path
        return [DiskWaitStarted(event.path)]

    def drop_item(self, item: str, now: float) -> list[SchedulerEvent]:
        """Note that the item no longer waits, for whatever reason."""
        if item not in self._waiting:
            return []
        self._waiting.remove(item)
        return [] if self._waiting else [DiskWaitEnded(now - self._since, self._path)]
