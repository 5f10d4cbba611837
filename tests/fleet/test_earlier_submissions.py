"""A run on a fleet shows its own submission, also when events of an earlier one are still to be read."""

import asyncio
from typing import Any

import pytest

from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome, Usage, Verdict, failed
from agentos.fleet.follow import FleetFollower, Followed
from agentos.storage.postgres.fleet_items import EventCursor, FleetEvent


def _ended(outcome: Outcome, submission: int) -> FleetEvent:
    return FleetEvent("LLD-1", 1.0, events.ItemEnded("LLD-1", outcome, 0.0, Usage(), 0), submission)


class FakeFleet:
    """Everything around a follower: session, database and collector."""

    def __init__(self) -> None:
        self.listeners = [self]
        self.conflicts: list[Any] = []
        self.endings: list[Ending] = []
        self._found = [_ended(failed("earlier"), 1), _ended(Outcome(Ending.FINISHED, Verdict.APPROVED), 2)]

    def events_after(self, cursor: EventCursor, items: Any, limit: int = 0) -> tuple[Any, EventCursor]:
        found, self._found = self._found, []
        return found, cursor

    def collect_all(self, say: Any = None) -> int:
        return 0

    def on_event(self, event: events.Event, at: float) -> None:
        if isinstance(event, events.ItemEnded):
            self.endings.append(event.outcome.ending)


@pytest.mark.parametrize(
    ("own", "endings"),
    [(("LLD-1",), [Ending.FINISHED]), ((), [Ending.FAILED, Ending.FINISHED])],
    ids=["submitted", "joined"],
)
def test_an_earlier_end_of_an_item_is_not_the_end_of_this_submission(
    own: tuple[str, ...], endings: list[Ending]
) -> None:
    fake: Any = FakeFleet()
    followed = Followed("shop", ("LLD-1",), dict.fromkeys(own, 2), own)
    signals: Any = type("NoSignals", (), {"arrived": []})()
    started = events.RunStarted("", "", "", ("LLD-1",), 1, ())
    follower = FleetFollower(fake.listeners, fake, fake, fake, followed)
    code = asyncio.run(follower.run(started, EventCursor(0), signals))
    assert fake.endings == endings
    assert code == 0  # how it ended at last
