"""Two workers write events in transactions that overlap, a follower reads in between; prints what it never got to see."""

import json
import random
import sys

import psycopg

from agentos.core.planning.items import Item
from agentos.core.planning.submission import ItemTask, SharedTask
from agentos.core.protocol import events
from agentos.core.protocol.codec import encode
from agentos.core.text.secrets import Secret
from agentos.storage.postgres.connecting import connect
from agentos.storage.postgres.fleet_items import FleetDatabase
from agentos.storage.postgres.schema import create_tables
from tests.fleet.servers import PostgresServer

TRANSACTIONS = 200
AT_ONCE = 4
ITEM = "LLD-1"


def main() -> int:
    server = PostgresServer()
    try:
        server.start()
        written, read = _write_and_read(server.admin_url)
    finally:
        server.close()
    for text in sorted(written - set(read)):
        print(f"never read: {text}")
    for text in sorted(text for text in set(read) if read.count(text) > 1):
        print(f"read twice: {text}")
    return int(sorted(read) != sorted(written))


def _write_and_read(url: str) -> tuple[set[str], list[str]]:
    rng = random.Random(7)
    with connect(Secret(url)) as connection:
        create_tables(connection)
    database = FleetDatabase(Secret(url), "shop")
    task = ItemTask(Item(ITEM, "lld", 1, "Title", "issues/1.md", digest="d1"))
    submission = database.submit(SharedTask("shop", "lld", 5, 2, 1800.0, (), (), ()), [task], None)
    database.connection.execute("UPDATE agentos_items SET claim = %s", ([submission, 1, 1],))
    cursor, read, written = database.horizon(), [], set()
    writers = [psycopg.connect(url) for _ in range(AT_ONCE)]
    is_open = [False] * AT_ONCE
    for number in range(TRANSACTIONS):
        which = rng.randrange(AT_ONCE)
        if is_open[which]:
            writers[which].commit()
        else:
            written.add(_write(writers[which], submission, number))
        is_open[which] = not is_open[which]
        found, cursor = database.events_after(cursor, [ITEM])
        read += [_text(entry.event) for entry in found]
    for writer in writers:
        writer.commit()
        writer.close()
    found, cursor = database.events_after(cursor, [ITEM])
    database.close()
    return written, read + [_text(entry.event) for entry in found]


def _write(writer: "psycopg.Connection[tuple[object, ...]]", submission: int, number: int) -> str:
    """In a transaction that stays open."""
    text = f"line {number}"
    event = json.dumps(encode(events.LineWritten(ITEM, text)))
    writer.execute("SELECT set_config('agentos.claim', %s, true)", (f"{{{submission},1,1}}",))
    writer.execute(
        "INSERT INTO agentos_events (thread_id, at, event) VALUES (%s, 0, %s)", (f"shop/{ITEM}", event)
    )
    return text


def _text(event: events.Event) -> str:
    assert isinstance(event, events.LineWritten)
    return event.text


if __name__ == "__main__":
    sys.exit(main())
