"""How a turn ends when Temporal cancels it, or the item cannot start."""

import asyncio
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from temporalio.activity import ActivityCancellationDetails
from temporalio.testing import ActivityEnvironment

from agentos.core.errors import PreflightError
from agentos.core.planning.items import Item
from agentos.core.planning.submission import ItemTask, SharedTask
from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome, Usage
from agentos.fleet import poller
from agentos.fleet.active_items import ActiveItems, PreparedItem
from agentos.fleet.poller import TemporalPoller
from agentos.fleet.turns import DRAINED, FINISHED, Turn, TurnResult
from agentos.storage.postgres.fleet_items import LoadedTask

TURN = Turn("shop", "LLD-1", 1, 1, 0, 2)
LOADED = LoadedTask(
    SharedTask("shop", "lld", 5, 2, 1800.0, (), (), ()),
    ItemTask(Item("LLD-1", "lld", 1, "Title", "issues/1.md", digest="d1")),
    "",
    1.0,
)


class FakeDatabase:
    def load(self, thread: str, submission: int) -> LoadedTask:
        return LOADED

    def claim(self, thread: str, claim: tuple[int, int, int], machine: str) -> None:
        self.claimed = (thread, claim, machine)


class FakeWriter:
    def __init__(self) -> None:
        self.states: list[str] = []
        self.outcomes: list[Any] = []
        self.done: Future[bool] = Future()

    def write(self, claim: object, event: object, at: float) -> None:
        pass

    def end(self, claim: object, state: str, outcome: object) -> "Future[bool]":
        self.states.append(state)
        self.outcomes.append(outcome)
        return self.done


class Machine:
    """A poller whose coordinator is the test."""

    def __init__(self, scratch: Path) -> None:
        self.active_items, self.writer = ActiveItems(), FakeWriter()
        self.temporal = ActivityEnvironment()
        self.database = FakeDatabase()
        self.errors: list[Exception] = []
        writer, database = cast(Any, self.writer), cast(Any, self.database)
        self.poller = TemporalPoller(
            self.active_items, writer, database, self.prepare, scratch, "m1", ["lld"], 1
        )

    def prepare(self, loaded: LoadedTask) -> PreparedItem:
        if self.errors:
            raise self.errors.pop(0)
        return PreparedItem("", (), None, None)

    async def start(self) -> "asyncio.Task[Any]":
        turn = asyncio.create_task(self.temporal.run(self.poller.run_item, TURN))
        await self.until(lambda: len(self.active_items) == 1)
        return turn

    async def until(self, is_so: Any) -> None:
        async with asyncio.timeout(60):
            while not is_so():  # noqa: ASYNC110 - the poller has no event to wait for
                await asyncio.sleep(0)

    def end_process(self, ending: Ending) -> None:
        active_item = self.active_items.remove("shop.LLD-1")
        assert active_item
        active_item.ended.set_result(events.ItemEnded(active_item.key, Outcome(ending), 0.0, Usage(), 0))


@pytest.mark.parametrize(
    ("details", "states"),
    [
        (ActivityCancellationDetails(cancel_requested=True), ["ended"]),
        (ActivityCancellationDetails(timed_out=True), []),
        (ActivityCancellationDetails(not_found=True), []),
    ],
)
def test_only_a_cancellation_by_a_person_is_recorded_as_the_outcome(
    details: ActivityCancellationDetails, states: list[str], tmp_path: Path
) -> None:
    async def test() -> None:
        machine = Machine(tmp_path)
        machine.writer.done.set_result(True)
        turn = await machine.start()
        machine.temporal.cancel(details)
        await machine.until(
            lambda: any(
                isinstance(m, events.ItemWithdrawn) for m in machine.active_items.take_membership_changes()
            )
        )
        machine.end_process(Ending.INTERRUPTED)
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert machine.writer.states == states

    asyncio.run(test())


def test_a_cancellation_while_the_end_is_written_leaves_the_write_alone(tmp_path: Path) -> None:
    async def test() -> None:
        machine = Machine(tmp_path)
        turn = await machine.start()
        machine.end_process(Ending.FINISHED)
        await machine.until(lambda: machine.writer.states == ["ended"])
        machine.temporal.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        machine.writer.done.set_result(True)

    asyncio.run(test())


def test_a_drain_that_times_out_while_the_end_is_written_hands_the_item_over(tmp_path: Path) -> None:
    """A cancelled turn without a result would count as a lost attempt, and no machine has died."""

    async def test() -> None:
        machine = Machine(tmp_path)
        turn = await machine.start()
        machine.active_items.is_draining = True
        machine.end_process(Ending.INTERRUPTED)
        await machine.until(lambda: machine.writer.states != [])
        machine.temporal.cancel(ActivityCancellationDetails(worker_shutdown=True))
        assert await turn == TurnResult(DRAINED)

    asyncio.run(test())


def test_a_second_cancellation_leaves_the_item_with_its_coordinator(tmp_path: Path) -> None:
    async def test() -> None:
        machine = Machine(tmp_path)
        turn = await machine.start()
        machine.temporal.cancel()
        await machine.until(
            lambda: any(
                isinstance(m, events.ItemWithdrawn) for m in machine.active_items.take_membership_changes()
            )
        )
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        machine.end_process(Ending.INTERRUPTED)

    asyncio.run(test())


def test_an_item_that_cannot_start_is_claimed_and_ends_as_failed(tmp_path: Path) -> None:
    async def test() -> None:
        machine = Machine(tmp_path)
        machine.writer.done.set_result(True)
        machine.errors = [PreflightError("no GitHub token")]
        result = await machine.temporal.run(machine.poller.run_item, TURN)
        assert (result.kind, machine.writer.states) == (FINISHED, ["ended"])
        assert machine.database.claimed == ("shop/LLD-1", (1, 1, 1), "m1")
        assert machine.writer.outcomes[0].error == "cannot start on m1: no GitHub token"
        assert len(machine.active_items) == 0

    asyncio.run(test())


def test_an_item_waits_for_postgres_before_it_starts(tmp_path: Path) -> None:
    async def test() -> None:
        machine = Machine(tmp_path)
        machine.writer.done.set_result(True)
        machine.errors = [psycopg.OperationalError("the server restarts")]
        turn = await machine.start()
        machine.end_process(Ending.FINISHED)
        assert (await turn).kind == FINISHED

    asyncio.run(test())


def test_a_worker_that_drains_while_postgres_is_away_hands_its_item_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended without a word, the turn would count as an attempt that a dead machine has used up."""
    monkeypatch.setattr(poller, "RETRY_INTERVAL", 0.001)
    monkeypatch.setattr(poller, "HAND_OVER_TIMEOUT", 0.01)

    async def test() -> None:
        machine = Machine(tmp_path)
        turn = await machine.start()
        machine.end_process(Ending.FINISHED)
        await machine.until(lambda: machine.writer.states == ["ended"])
        machine.active_items.is_draining = True  # and nothing is written
        assert (await turn).kind == DRAINED

    asyncio.run(test())


def test_an_item_that_waits_for_postgres_on_a_draining_worker_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poller, "RETRY_INTERVAL", 0.001)

    async def test() -> None:
        machine = Machine(tmp_path)
        machine.errors = [psycopg.OperationalError("away")] * 1000
        machine.active_items.is_draining = True
        result = await machine.temporal.run(machine.poller.run_item, TURN)
        assert (result.kind, machine.writer.states) == (DRAINED, [])

    asyncio.run(test())


def test_a_failure_before_the_process_could_claim_its_item_is_recorded(tmp_path: Path) -> None:
    async def test() -> None:
        machine = Machine(tmp_path)
        machine.writer.done.set_result(True)
        turn = await machine.start()
        machine.end_process(Ending.FAILED)
        assert (await turn).kind == FINISHED
        assert machine.database.claimed == ("shop/LLD-1", (1, 1, 1), "m1")

    asyncio.run(test())
