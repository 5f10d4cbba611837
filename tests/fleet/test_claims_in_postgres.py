"""Postgres and `core.planning.claims` decide alike, claim by claim."""

import asyncio
import itertools

import psycopg
import pytest

from agentos.core.planning.claims import ClaimNumber, may_write, outranks
from agentos.core.planning.items import Item
from agentos.core.planning.submission import ItemTask, SharedTask
from agentos.core.planning.worker_task import FleetTask, WorkerTask
from agentos.core.text.secrets import Secret
from agentos.storage.item_store import Claim
from agentos.storage.postgres.claimed_item import PostgresItemStore
from agentos.storage.postgres.fleet_items import EventCursor, FleetDatabase, count_settled

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
ITEM = Item("LLD-1", "lld", 1, "Title", "issues/1.md", digest="d1")
SHARED = SharedTask("shop", "lld", 5, 2, 1800.0, (), (), ())
CLAIMS: list[ClaimNumber] = list(itertools.product((1, 2), (1, 10), (2, 9)))


def test_the_fence_and_the_claims_compare_as_the_pure_functions_do(database: str) -> None:
    follower = FleetDatabase(Secret(database), "shop")
    follower.submit(SHARED, [ItemTask(ITEM)], None)
    with psycopg.connect(database, autocommit=True) as admin:
        for held, claim in itertools.product(CLAIMS, CLAIMS):
            admin.execute("UPDATE agentos_items SET claim = %s, claimed_by = 'other'", (list(held),))
            assert _may_write(admin, claim) is may_write(claim, held), (claim, held)
            assert asyncio.run(_claims(database, claim)) is outranks(claim, held), (claim, held)
            admin.execute("UPDATE agentos_items SET claim = %s", (list(held),))
            follower.claim("shop/LLD-1", claim, "machine")
            row = admin.execute("SELECT claim FROM agentos_items").fetchone()
            assert row == (list(max(claim, held)),)
    follower.close()


def _may_write(connection: "psycopg.Connection[tuple[object, ...]]", claim: ClaimNumber) -> bool:
    text = "{" + ",".join(map(str, claim)) + "}"
    connection.execute("SELECT set_config('agentos.claim', %s, false)", (text,))
    try:
        connection.execute("SELECT agentos_check_claim('shop/LLD-1')")
    except psycopg.DatabaseError:
        return False
    return True


async def _claims(database: str, claim: ClaimNumber) -> bool:
    task = WorkerTask("run", 1, "/nowhere", "lld", ITEM, "", 5, (), origin="")
    store = PostgresItemStore(task, FleetTask(Secret(database), "shop/LLD-1", claim, "m", "shop.LLD-1"))
    try:
        return isinstance(await store.claim(), Claim)
    finally:
        await store.release()


def test_events_at_or_beyond_the_horizon_are_not_read_yet() -> None:
    found = [EventCursor(5, 9), EventCursor(7, 1), EventCursor(7, 2), EventCursor(8, 3)]
    assert [count_settled(found, horizon) for horizon in (5, 6, 7, 8, 9)] == [0, 1, 1, 3, 4]
