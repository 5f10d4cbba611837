"""How long a worker may take, or say nothing, before something is done about it."""

from agentos.core.events import ItemQuiet
from agentos.core.work import Work

SHORTEST_USUAL = 30.0
USUAL_FACTOR = 4


class Patience:
    """`timeout` is for one try at an item; silence is measured by the longest call so far."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._longest_call = 0.0

    def saw_call(self, seconds: float) -> None:
        self._longest_call = max(self._longest_call, seconds)

    def ends_with(self, work: Work, now: float) -> bool:
        """Whether its worker is to be killed: out of time, or still there when it should have left."""
        if work.is_over_time(self._timeout, now):
            work.timed_out = True
            return True
        return work.lingers(now) or work.overstays(now)

    def wonders_about(self, work: Work, now: float) -> ItemQuiet | None:
        return work.falls_quiet(self._usual(), now)

    def deadline(self, work: Work) -> float | None:
        return work.deadline(self._timeout, self._usual())

    def _usual(self) -> float:
        """After how much silence an item is worth a word."""
        return max(SHORTEST_USUAL, USUAL_FACTOR * self._longest_call)
