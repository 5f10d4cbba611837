"""What a worker records of its items: everything storable is stored, and one item's trouble stays its own."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from agentos.core.planning.items import Item
from agentos.core.planning.submission import ItemTask, SharedTask
from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome, failed
from agentos.core.text.secrets import Secret
from agentos.storage.postgres.event_writer import EventWriter, ItemClaim
from agentos.storage.postgres.fleet_items import FleetDatabase

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
ITEMS = ("LLD-1", "LLD-2")
INTERRUPTED = Outcome(Ending.INTERRUPTED)


@pytest.fixture
def fleet_database(database: str) -> Iterator[FleetDatabase]:
    found = FleetDatabase(Secret(database), "shop")
    tasks = [ItemTask(Item(item, "lld", 1, "Title", "issues/1.md", digest="d1")) for item in ITEMS]
    submission = found.submit(SharedTask("shop", "lld", 5, 2, 1800.0, (), (), ()), tasks, None)
    found.connection.execute("UPDATE agentos_items SET claim = %s", ([submission, 1, 1],))
    yield found
    found.close()


@pytest.fixture
def writer(database: str, fleet_database: FleetDatabase) -> Iterator[EventWriter]:
    found = EventWriter(Secret(database), _redact)
    yield found
    found.close(5)


def _redact(text: str) -> str:
    if "unforeseen" in text:
        raise RuntimeError("unforeseen")
    return text.replace("key-123", "[redacted]")


def claim_on(database: FleetDatabase, item: str) -> ItemClaim:
    return ItemClaim(f"shop/{item}", (database.items()[item].submission, 1, 1))


def test_a_cancelled_wait_is_recorded_all_the_same_and_ends_no_other(
    fleet_database: FleetDatabase, writer: EventWriter
) -> None:
    first, second = (claim_on(fleet_database, item) for item in ITEMS)
    writer.write(first, events.NodeStarted("LLD-1", "N1_design", 1), 1.0)  # the batch waits for more
    assert writer.end(first, "ended", INTERRUPTED).cancel()
    assert writer.end(second, "ended", INTERRUPTED).result(30) is True
    assert {row.state for row in fleet_database.items().values()} == {"ended"}


def test_an_error_that_nobody_foresaw_fails_one_item_and_the_others_are_recorded(
    fleet_database: FleetDatabase, writer: EventWriter
) -> None:
    first, second = (claim_on(fleet_database, item) for item in ITEMS)
    with pytest.raises(RuntimeError, match="unforeseen"):
        writer.end(first, "ended", failed("unforeseen")).result(30)
    assert writer.end(second, "ended", INTERRUPTED).result(30) is True
    assert [row.state for row in fleet_database.items().values()] == ["submitted", "ended"]


def test_text_that_is_not_unicode_is_stored_and_readable_again(
    fleet_database: FleetDatabase, writer: EventWriter
) -> None:
    cursor = fleet_database.horizon()
    claim = claim_on(fleet_database, "LLD-1")
    writer.write(claim, events.LineWritten("LLD-1", "half \ud83d and \x00"), 1.0)
    assert writer.end(claim, "ended", failed("half \udcff")).result(30) is True
    (found,), _ = fleet_database.events_after(cursor, ["LLD-1"])
    assert isinstance(found.event, events.LineWritten)
    assert found.event.text == "half \\ud83d and \x00"
    assert found.submission == claim.claim[0]
    assert fleet_database.items()["LLD-1"].text == "half \\udcff"


def test_no_key_is_stored_with_an_outcome(
    database: str, fleet_database: FleetDatabase, writer: EventWriter
) -> None:
    claim = claim_on(fleet_database, "LLD-1")
    assert writer.end(claim, "ended", failed("refused key-123")).result(30) is True
    with psycopg.connect(database) as reader:
        ((stored,),) = reader.execute("SELECT outcome::text FROM agentos_items WHERE outcome IS NOT NULL")
    assert "refused [redacted]" in stored and "key-123" not in stored


def test_what_is_told_before_the_claim_is_written_with_what_follows_and_an_outranked_one_is_not(
    fleet_database: FleetDatabase, writer: EventWriter
) -> None:
    first, second = (claim_on(fleet_database, item) for item in ITEMS)
    number = first.claim[0]
    next_turn, outranked = (
        ItemClaim(first.thread_id, (number, 2, 1)),
        ItemClaim(second.thread_id, (number, 0, 1)),
    )
    cursor = fleet_database.horizon()
    for claim, item in ((next_turn, "LLD-1"), (outranked, "LLD-2")):
        writer.write(claim, events.ItemStarted(item, 1, 1), 1.0)
    # Another item's end comes after these in the queue: when it is recorded, both were refused.
    assert writer.end(second, "ended", INTERRUPTED).result(30) is True
    assert fleet_database.events_after(cursor, ITEMS)[0] == []
    fleet_database.claim(first.thread_id, next_turn.claim, "m1")
    writer.write(next_turn, events.NodeStarted("LLD-1", "N1_design", 1), 2.0)
    writer.write(outranked, events.NodeStarted("LLD-2", "N1_design", 1), 2.0)
    assert writer.end(next_turn, "ended", INTERRUPTED).result(30) is True
    assert writer.end(outranked, "ended", INTERRUPTED).result(30) is False
    found, _ = fleet_database.events_after(cursor, ITEMS)
    assert [(entry.item, type(entry.event)) for entry in found] == [
        ("LLD-1", events.ItemStarted),
        ("LLD-1", events.NodeStarted),
    ]


class UnconfirmedWriter(EventWriter):
    """Its first commit is done, but the connection breaks before the server can say so."""

    broken = 0

    def _write_transaction(self, *args: Any) -> None:
        super()._write_transaction(*args)
        if not self.broken:
            self.broken += 1
            self._connected().close()
            raise psycopg.OperationalError("the server closed the connection")


def test_events_whose_commit_was_not_confirmed_are_not_written_again(
    database: str, fleet_database: FleetDatabase
) -> None:
    writer = UnconfirmedWriter(Secret(database), _redact)
    first, second = (claim_on(fleet_database, item) for item in ITEMS)
    writer.write(first, events.NodeStarted("LLD-1", "N1_design", 1), 1.0)
    assert writer.end(first, "ended", INTERRUPTED).result(30) is True
    writer.write(second, events.NodeStarted("LLD-2", "N1_design", 1), 2.0)
    assert writer.end(second, "ended", INTERRUPTED).result(30) is True
    writer.close(5)
    assert writer.broken == 1
    with psycopg.connect(database) as reader:
        assert reader.execute("SELECT at FROM agentos_events ORDER BY at").fetchall() == [(1.0,), (2.0,)]
