"""A follower whose Temporal and Postgres are fakes: what it makes of workflows that are gone."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import WorkflowExecutionStatus as Status
from temporalio.service import RPCError, RPCStatusCode

from agentos.core.errors import PreflightError
from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome, Usage, Verdict, failed
from agentos.fleet.follow import FleetFollower, Followed
from agentos.fleet.temporal import cancel_items, map_bounded, workflow_status
from agentos.run.signals import Signals
from agentos.storage.postgres.fleet_items import EventCursor, FleetEvent, FleetItem

AWAY = RPCError("connection refused", RPCStatusCode.UNAVAILABLE, b"")
GONE = RPCError("no such workflow", RPCStatusCode.NOT_FOUND, b"")
DONE = Outcome(Ending.FINISHED, verdict=Verdict.APPROVED)


@dataclass
class FakeTemporal:
    """Answers each `describe` with the next answer; the last one is repeated."""

    answers: list[Status | RPCError]
    asked: int = 0

    def get_workflow_handle(self, workflow: str) -> "FakeTemporal":
        return self

    async def describe(self) -> SimpleNamespace:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if isinstance(answer, RPCError):
            raise answer
        return SimpleNamespace(status=answer)

    cancel = describe


@dataclass
class FakeFleetDatabase:
    row: FleetItem
    new: list[FleetEvent] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def events_after(self, cursor: EventCursor, items: Sequence[str]) -> tuple[list[FleetEvent], EventCursor]:
        found, self.new = self.new, []
        return found, cursor

    def items(self, names: Sequence[str]) -> dict[str, FleetItem]:
        return {self.row.item: self.row}

    def fail(self, item: str, outcome: Outcome) -> None:
        self.failed.append(item)


@dataclass
class Recorder:
    published: list[events.Event] = field(default_factory=list)

    def on_event(self, event: events.Event, at: float) -> None:
        self.published.append(event)

    def close(self) -> None:
        pass

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.published if isinstance(event, kind)]


def row(state: str, outcome: Outcome | None = None) -> FleetItem:
    return FleetItem("LLD-1", "lld", 1, "d1", state, "m1", "", "", outcome, "")


def follow(temporal: FakeTemporal, database: FakeFleetDatabase) -> tuple[int, Recorder]:
    recorder = Recorder()
    collector = SimpleNamespace(collect_all=lambda: 0, conflicts=[])
    followed = Followed("shop", ("LLD-1",), {"LLD-1": 1}, ("LLD-1",))
    follower = FleetFollower(
        [recorder], cast(Any, database), cast(Any, temporal), cast(Any, collector), followed, 0.0
    )
    started = events.RunStarted("", "", "", ("LLD-1",), 1, ())
    code = asyncio.run(follower.run(started, EventCursor(1), Signals(lambda: None)))
    return code, recorder


def test_an_item_is_not_given_up_while_temporal_does_not_answer() -> None:
    database = FakeFleetDatabase(row("running"))
    temporal = FakeTemporal([AWAY, AWAY, AWAY, GONE])
    code, recorder = follow(temporal, database)
    assert temporal.asked == 5  # three without an answer, then gone twice in a row
    assert (code, database.failed) == (1, ["LLD-1"])
    assert "given it up" in recorder.of(events.ItemEnded)[0].outcome.error


def test_an_item_missing_once_and_running_again_is_not_given_up() -> None:
    database = FakeFleetDatabase(row("ended", failed("the reason in its row")))
    code, _ = follow(FakeTemporal([GONE, Status.RUNNING, GONE, Status.RUNNING, GONE]), database)
    assert (code, database.failed) == (1, [])


@pytest.mark.parametrize(("outcome", "code"), [(DONE, 0), (failed("no such model"), 1)])
def test_an_item_whose_last_events_stay_hidden_ends_as_its_row_says(outcome: Outcome, code: int) -> None:
    database = FakeFleetDatabase(row("ended", outcome))
    found, recorder = follow(FakeTemporal([Status.COMPLETED]), database)
    assert (found, database.failed) == (code, [])
    assert [event.outcome for event in recorder.of(events.ItemEnded)] == [outcome]


def test_the_time_that_items_waited_for_keys_is_added_up() -> None:
    entries: list[events.Event] = [
        events.LeaseGranted("LLD-1", "key-1", "a", 1.5),
        events.LeaseGranted("LLD-1", "key-1", "b", 2.0),
        events.ItemEnded("LLD-1", DONE, 3.0, Usage(), 1),
    ]
    database = FakeFleetDatabase(row("ended", DONE), [FleetEvent("LLD-1", 1.0, each) for each in entries])
    code, recorder = follow(FakeTemporal([Status.RUNNING]), database)
    assert (code, recorder.of(events.RunEnded)[0].waited_seconds) == (0, 3.5)


@pytest.mark.parametrize("again", [events.ItemRequeued("LLD-1"), events.ItemStarted("LLD-1", 1, 1)])
def test_an_item_that_goes_on_after_its_end_is_followed_to_its_next_end(again: events.Event) -> None:
    entries = [
        events.ItemEnded("LLD-1", failed("no such model"), 1.0, Usage(), 1),
        again,
        events.ItemEnded("LLD-1", DONE, 2.0, Usage(), 1),
    ]
    database = FakeFleetDatabase(row("ended", DONE), [FleetEvent("LLD-1", 1.0, each) for each in entries])
    code, recorder = follow(FakeTemporal([Status.RUNNING]), database)
    assert (code, len(recorder.of(events.ItemEnded))) == (0, 2)


def test_only_a_workflow_that_temporal_does_not_know_is_gone() -> None:
    assert asyncio.run(workflow_status(cast(Any, FakeTemporal([GONE])), "shop/LLD-1")) is None
    with pytest.raises(RPCError):
        asyncio.run(workflow_status(cast(Any, FakeTemporal([AWAY])), "shop/LLD-1"))


def test_stopping_counts_the_items_that_were_there_and_reports_an_outage() -> None:
    there = FakeTemporal([Status.RUNNING, GONE, Status.RUNNING])
    assert asyncio.run(cancel_items(cast(Any, there), "shop", ["a", "b", "c"])) == 2
    with pytest.raises(PreflightError, match="Temporal did not answer"):
        asyncio.run(cancel_items(cast(Any, FakeTemporal([AWAY])), "shop", ["a"]))


def test_requests_are_bounded() -> None:
    under_way, most = 0, 0

    async def call(number: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return number

    assert asyncio.run(map_bounded(call, range(200))) == list(range(200))
    assert most == 50
