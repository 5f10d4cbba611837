"""A run as a report tells it: what it adds up to, what happened when, how far its journal can be read."""

import contextlib
from dataclasses import dataclass, field

from agentos.core import events
from agentos.core.tally import Row, Tally
from agentos.core.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Told:
    """Something that was said of the run as a whole; `at` is wall time."""

    at: float
    event: events.News | events.CredentialsRejected


@dataclass(slots=True)
class Story:
    """Fed with every event of a run, in order; `alive` is whether its process still holds its lock."""

    run: str
    alive: bool = False
    unread: int = 0
    torn: bool = False
    tally: Tally = field(default_factory=Tally)
    timeline: Timeline = field(default_factory=Timeline)
    told: list[Told] = field(default_factory=list)
    _ahead: float = 0.0

    def hear(self, event: events.Event, at: float) -> None:
        at = self._onwards(at)
        with contextlib.suppress(KeyError):  # of an item that no readable line has announced
            self.tally.hear(event, at)
        self.timeline.hear(event, at)
        if isinstance(event, events.News | events.CredentialsRejected):
            self.told.append(Told(at, event))

    def _onwards(self, at: float) -> float:
        """A wall clock that was set back does not take the story back."""
        self._ahead = max(self._ahead, self.timeline.last - at)
        return at + self._ahead

    # What people ask for.

    @property
    def state(self) -> str:
        if self.tally.ended:
            return f"ended with exit code {self.tally.ended.exit_code}"
        if not self.alive:
            return "was killed, or its machine went down"
        return "is running" if self.tally.suspended_at is None else "stands still (Ctrl-Z)"

    @property
    def seconds(self) -> float:
        """From the beginning to the end, or to the last thing that is known."""
        return self.tally.ended.seconds if self.tally.ended else max(0.0, self.tally.last - self.tally.began)

    def word_of(self, row: Row) -> str:
        """The item's state in one or two words, also when nobody is left to change it."""
        died = row.running and not self.alive and row.outcome is None
        return "died here" if died else row.word

    def seconds_of(self, row: Row) -> float:
        return row.age(self.tally.present(self.tally.last))

    @property
    def titles(self) -> dict[str, str]:
        started = self.tally.started
        return dict(zip(started.items, started.titles, strict=False)) if started else {}
