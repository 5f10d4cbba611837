"""The watchdog: finds workers that run too long, have gone silent, or wait for disk space."""

from agentos.core.protocol.events import DiskFreed, DiskFull, DiskWaitEnded, DiskWaitStarted, ItemQuiet, News
from agentos.core.scheduling.item_state import ItemState

MIN_USUAL_SILENCE = 30.0  # seconds
SILENCE_FACTOR = 4  # times the longest call


class Watchdog:
    """Finds workers to kill and workers to report as quiet.

    A worker is killed when its attempt has used up `timeout` seconds of active time, or when it has not exited
    after its report or a pause. It is reported as SLOW, then STALLED, when it has been silent for longer than the
    longest call so far makes plausible.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._usual_silence = MIN_USUAL_SILENCE

    def record_call(self, seconds: float) -> None:
        self._usual_silence = max(self._usual_silence, SILENCE_FACTOR * seconds)

    def is_due(self, item: ItemState, now: float) -> bool:
        """Whether any deadline of the worker has passed. Cheap: asked for every worker in every step."""
        due = self.deadline(item)
        return due is not None and due <= now

    def should_kill(self, item: ItemState, now: float) -> bool:
        """Whether the worker is out of time, or should have exited by now. True once per reason."""
        if item.is_timed_out(self._timeout, now):
            item.timed_out = True
            return True
        return item.is_exit_overdue(now) or item.is_suspend_overdue(now)

    def quiet_event(self, item: ItemState, now: float) -> ItemQuiet | None:
        return item.silence_event(self._usual_silence, now)

    def deadline(self, item: ItemState) -> float | None:
        return item.deadline(self._timeout, self._usual_silence)


class DiskWait:
    """Every worker reports a full disk; news come with the first item that waits and after the last."""

    def __init__(self) -> None:
        self._waiting: set[str] = set()
        self._since = 0.0

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def handle(self, event: DiskFull | DiskFreed, now: float) -> list[News]:
        if isinstance(event, DiskFreed):
            return self.drop_item(event.item, now)
        if not self._waiting:
            self._since = now
        news: list[News] = [] if self._waiting else [DiskWaitStarted(event.path)]
        self._waiting.add(event.item)
        return news

    def drop_item(self, item: str, now: float) -> list[News]:
        """The item no longer waits, for whatever reason."""
        if item not in self._waiting:
            return []
        self._waiting.remove(item)
        return [] if self._waiting else [DiskWaitEnded(now - self._since)]
