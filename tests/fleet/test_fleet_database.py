"""What is read of a fleet's items and events, whatever they contain and whoever has written them."""

import json
import time
from collections.abc import Iterator

import pytest

from agentos.core.planning.items import Item
from agentos.core.planning.submission import ItemTask, SharedTask
from agentos.core.protocol import events
from agentos.core.protocol.codec import encode
from agentos.core.text.secrets import Secret
from agentos.fleet.replay import as_run, load_stats
from agentos.storage.postgres.fleet_items import EventCursor, FleetDatabase

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
ITEM = Item("LLD-1", "lld", 1, "Title", "issues/1.md", digest="d1")
THREAD = "shop/LLD-1"


@pytest.fixture
def shop(database: str) -> Iterator[FleetDatabase]:
    """A project with one item, whose file is neither UTF-8 nor free of NUL."""
    found = FleetDatabase(Secret(database), "shop")
    task = ItemTask(ITEM, inputs=(("issues/1.md", "# Title \udcff \x00"),))
    number = found.submit(SharedTask("shop", "lld", 5, 2, 1800.0, (), (), ()), [task], None)
    found.connection.execute("UPDATE agentos_items SET claim = %s", ([number, 1, 1],))
    yield found
    found.close()


def write(database: FleetDatabase, *records: dict[str, object]) -> None:
    with database.connection.transaction():
        database.connection.execute(
            "SELECT set_config('agentos.claim', (SELECT claim::text FROM agentos_items), true)"
        )
        for record in records:
            database.connection.execute(
                "INSERT INTO agentos_events (thread_id, at, event) VALUES (%s, 1.0, %s)",
                (THREAD, json.dumps({"submission": 1, **record})),
            )


def test_a_worker_is_told_when_its_item_was_submitted(shop: FleetDatabase) -> None:
    loaded = shop.load(THREAD, 1)
    assert loaded and abs(loaded.submitted_at - time.time()) < 600


def test_events_of_a_newer_version_are_left_out_and_what_follows_is_read(shop: FleetDatabase) -> None:
    known = [{**encode(events.NodeStarted("LLD-1", name, 1))} for name in ("N0", "N1")]
    new: dict[str, object] = {"type": "from_the_future", "item": "LLD-1"}
    write(shop, known[0], new, new, new, known[1])
    cursor, nodes = EventCursor(0), list[str]()
    while True:
        found, cursor = shop.events_after(cursor, ["LLD-1"], limit=2)
        if not found:
            break
        nodes += [entry.event.node for entry in found if isinstance(entry.event, events.NodeStarted)]
    assert nodes == ["N0", "N1"]


def test_an_item_whose_file_is_no_text_is_shown(shop: FleetDatabase) -> None:
    rows = list(shop.items().values())
    started = as_run(shop, "shop", "/nowhere", rows)
    assert started.titles == ("Title",)
    write(shop, encode(events.ItemStarted("LLD-1", 1, 1)))
    assert load_stats(shop, started, rows).rows["LLD-1"].running
