"""Run record: what a report needs to know about one run, built from its events."""

import contextlib
from dataclasses import dataclass, field

from agentos.core.protocol import events
from agentos.core.run_state.run_stats import ItemStats, RunStats
from agentos.core.run_state.timeline import Timeline


@dataclass(frozen=True, slots=True)
class TimedEvent:
    """An event of the run as a whole; `at` is wall time."""

    at: float
    event: events.SchedulerEvent | events.CredentialsRejected


@dataclass(slots=True)
class RunRecord:
    """Pass every event of a run to `handle`, in order.

    alive: the run's process still holds its lock.
    unread: how many lines of the journal could not be read.
    torn: the journal ends in the middle of a line.
    """

    run: str
    alive: bool = False
    unread: int = 0
    torn: bool = False
    stats: RunStats = field(default_factory=RunStats)
    timeline: Timeline = field(default_factory=Timeline)
    timed_events: list[TimedEvent] = field(default_factory=list)
    _clock_offset: float = 0.0

    def handle(self, event: events.Event, at: float) -> None:
        at = self._monotonic(at)
        with contextlib.suppress(KeyError):  # of an item that no readable line has announced
            self.stats.handle(event, at)
        self.timeline.handle(event, at)
        if isinstance(event, events.SchedulerEvent | events.CredentialsRejected):
            self.timed_events.append(TimedEvent(at, event))

    def _monotonic(self, at: float) -> float:
        """Keep times increasing when the wall clock was set back."""
        self._clock_offset = max(self._clock_offset, self.timeline.last - at)
        return at + self._clock_offset

    # Queries.

    @property
    def state(self) -> str:
        if self.stats.ended:
            return f"ended with exit code {self.stats.ended.exit_code}"
        if not self.alive:
            return "was killed, or its machine went down"
        return "is in progress" if self.stats.suspended_at is None else "is suspended (Ctrl-Z)"

    @property
    def seconds(self) -> float:
        """From the start of the run to its end, or to its last event."""
        return self.stats.ended.seconds if self.stats.ended else max(0.0, self.stats.last - self.stats.began)

    def status_of(self, row: ItemStats) -> str:
        return row.status_in(alive=self.alive)

    def seconds_of(self, row: ItemStats) -> float:
        return row.age(self.stats.item_clock(self.stats.last))

    @property
    def titles(self) -> dict[str, str]:
        started = self.stats.started
        return dict(zip(started.items, started.titles, strict=False)) if started else {}
