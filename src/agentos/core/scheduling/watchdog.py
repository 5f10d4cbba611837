"""How long a worker may take, or say nothing, before something is done about it."""

from agentos.core.protocol.events import ItemQuiet
from agentos.core.scheduling.item_state import ItemState

SHORTEST_USUAL = 30.0
USUAL_FACTOR = 4


class Watchdog:
    """`timeout` is for one try at an item; silence is measured by the longest call so far."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        # After how much silence an item is worth a word.
        self._usual = SHORTEST_USUAL

    def saw_call(self, seconds: float) -> None:
        self._usual = max(self._usual, USUAL_FACTOR * seconds)

    def is_over(self, work: ItemState, now: float) -> bool:
        """Whether there is anything to be done about it; asked of every worker whenever anything happens."""
        due = self.deadline(work)
        return due is not None and due <= now

    def times_out(self, work: ItemState, now: float) -> bool:
        """Whether its worker is to be killed: out of time, or still there when it should have left."""
        if work.is_over_time(self._timeout, now):
            work.timed_out = True
            return True
        return work.lingers(now) or work.overstays(now)

    def quiet_event(self, work: ItemState, now: float) -> ItemQuiet | None:
        return work.silence_event(self._usual, now)

    def deadline(self, work: ItemState) -> float | None:
        return work.deadline(self._timeout, self._usual)
