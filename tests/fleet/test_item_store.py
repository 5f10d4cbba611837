"""One contract for both item stores: files, and Postgres."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from agentos.core.planning.items import Item, ItemStatus
from agentos.core.planning.submission import ItemTask, SharedTask
from agentos.core.planning.worker_task import FleetTask, WorkerTask
from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome, Verdict
from agentos.core.text.secrets import Secret
from agentos.fleet.collect import Collector
from agentos.storage.file_items import FileItemStore
from agentos.storage.home import Home
from agentos.storage.item_store import Claim, ItemStore
from agentos.storage.postgres.claimed_item import PostgresItemStore
from agentos.storage.postgres.event_writer import EventWriter, ItemClaim
from agentos.storage.postgres.fleet_items import FleetDatabase
from tests.fleet.servers import PostgresServer
from tests.storage.cut_short import stop_and_resume

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
ITEM = Item("LLD-1", "lld", 1, "Title", "issues/1.md", digest="d1")
SHARED = SharedTask("shop", "lld", 5, 2, 1800.0, (), (), ())


@dataclass
class Stores:
    """Makes stores for attempts at the same item, each later one outranking the earlier."""

    make: Callable[[int], ItemStore]
    fenced: bool


def _task(project: Path, database: Path) -> WorkerTask:
    return WorkerTask("run", 1, str(project), "lld", ITEM, str(database), 5, (), origin="")


@pytest.fixture(params=["files", "postgres"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    project = tmp_path / "project"
    project.mkdir()
    if request.param == "files":
        return Stores(
            lambda attempt: FileItemStore(_task(project, tmp_path / "item.db"), print), fenced=False
        )
    conninfo = Secret(request.getfixturevalue("database"))
    submission = _submit(conninfo)

    def make(attempt: int) -> ItemStore:
        access = FleetTask(conninfo, "shop/LLD-1", (submission, 1, attempt), f"m{attempt}", "shop.LLD-1")
        return PostgresItemStore(_task(tmp_path / f"scratch-{attempt}", Path()), access)

    return Stores(make, fenced=True)


def _submit(conninfo: Secret) -> int:
    database = FleetDatabase(conninfo, "shop")
    try:
        return database.submit(SHARED, [ItemTask(ITEM)], None)
    finally:
        database.close()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


async def claimed(store: ItemStore) -> ItemStore:
    assert isinstance(await store.claim(), Claim)
    return store


def test_notes_and_documents_outlive_the_worker(stores: Stores) -> None:
    async def test() -> None:
        first = await claimed(stores.make(1))
        async with first.open() as checkpoint:
            await checkpoint.note("answer draft-1", "paid for")
            first.documents.write("docs/lineage/active/1-lld/002-draft.md", b"text")
            config: Any = {"configurable": {"thread_id": first.thread_id, "checkpoint_ns": ""}}
            saved = _checkpoint()
            await checkpoint.saver.aput(config, saved, {}, {})
        await first.release()
        second = await claimed(stores.make(2))
        async with second.open() as checkpoint:
            assert await checkpoint.noted("answer draft-1") == "paid for"
            assert await checkpoint.count_answers() == 1
            assert await checkpoint.saver.aget_tuple({"configurable": {"thread_id": second.thread_id}})
            await checkpoint.forget("answer draft-1")
            assert await checkpoint.noted("answer draft-1") is None
        assert second.documents.read("docs/lineage/active/1-lld/002-draft.md") == b"text"
        await second.release()

    run(test)


def test_an_item_stopped_between_two_nodes_goes_on_with_the_second(stores: Stores) -> None:
    async def test() -> None:
        store = await claimed(stores.make(1))
        async with store.open() as checkpoint:
            found = await stop_and_resume(checkpoint.saver, store.thread_id)
            assert found == {"first": "done", "second": "done"}
        await store.release()

    run(test)


def test_a_finished_item_has_its_verdict_and_no_checkpoint(stores: Stores) -> None:
    async def test() -> None:
        store = await claimed(stores.make(1))
        assert await store.earlier_verdict(lambda: ItemStatus.PENDING, lambda notes: False) is None
        async with store.open() as checkpoint:
            await checkpoint.note("node", "N4_finalize")
        store.documents.write("docs/lld/active/LLD-001.md", b"design")
        await store.finish(lambda documents: None, Outcome(Ending.FINISHED, Verdict.APPROVED))
        await store.release()
        again = await claimed(stores.make(2))
        assert (
            await again.earlier_verdict(lambda: ItemStatus.APPROVED, lambda notes: False) is Verdict.APPROVED
        )
        async with again.open() as checkpoint:
            assert await checkpoint.noted("node") is None
        assert again.documents.read("docs/lld/active/LLD-001.md") == b"design"
        await again.release()

    run(test)


def test_of_two_workers_only_one_works_on_the_item(stores: Stores) -> None:
    """Files: whoever came first keeps it. Postgres: the later attempt outranks the earlier, which can write nothing."""

    async def test() -> None:
        first = await claimed(stores.make(1))
        second = stores.make(2)
        found = await second.claim()
        if not stores.fenced:
            assert isinstance(found, Outcome) and found.ending is Ending.HELD_BY_OTHER_RUN
            await first.release()
            return
        assert isinstance(found, Claim)
        async with first.open() as checkpoint:
            writes: tuple[Callable[[], Coroutine[Any, Any, Any]], ...] = (
                lambda: checkpoint.note("node", "N1"),
                lambda: checkpoint.saver.aput(
                    {"configurable": {"thread_id": first.thread_id, "checkpoint_ns": ""}},
                    _checkpoint(),
                    {},
                    {},
                ),
                lambda: first.finish(lambda documents: None, Outcome(Ending.FINISHED, Verdict.APPROVED)),
            )
            for write in writes:
                with pytest.raises(psycopg.Error) as caught:
                    await write()
                assert first.is_lost(caught.value)
        assert await second.earlier_verdict(lambda: ItemStatus.PENDING, lambda notes: False) is None
        late = stores.make(1)
        refused = await late.claim()
        assert isinstance(refused, Outcome) and refused.ending is Ending.HELD_BY_OTHER_RUN
        for store in (first, second, late):
            await store.release()

    run(test)


def test_the_attempt_alone_is_no_fence_a_new_submission_outranks_it(database: str, tmp_path: Path) -> None:
    async def test() -> None:
        conninfo = Secret(database)
        old = _submit(conninfo)
        first = PostgresItemStore(
            _task(tmp_path / "a", Path()), FleetTask(conninfo, "shop/LLD-1", (old, 1, 7), "a", "k")
        )
        await claimed(first)
        new = _submit(conninfo)
        second = PostgresItemStore(
            _task(tmp_path / "b", Path()), FleetTask(conninfo, "shop/LLD-1", (new, 1, 1), "b", "k")
        )
        await claimed(second)
        async with first.open() as checkpoint:
            with pytest.raises(psycopg.Error) as caught:
                await checkpoint.note("node", "N1")
        assert first.is_lost(caught.value)
        await first.release()
        await second.release()

    run(test)


def test_only_the_first_attempt_that_gets_a_submitted_item_starts_it_over(
    database: str, tmp_path: Path
) -> None:
    """The first attempt may never have got as far as its claim."""
    conninfo = Secret(database)

    async def is_first(submission: int, turn: int, attempt: int) -> bool:
        access = FleetTask(conninfo, "shop/LLD-1", (submission, turn, attempt), "a", "k")
        store = PostgresItemStore(_task(tmp_path / "a", Path()), access)
        found = await store.claim()
        await store.release()
        assert isinstance(found, Claim)
        return found.is_first

    async def test() -> None:
        old = _submit(conninfo)
        assert [await is_first(old, 1, 2), await is_first(old, 1, 3)] == [True, False]
        new = _submit(conninfo)
        assert [await is_first(new, 2, 1), await is_first(new, 2, 2)] == [True, False]

    run(test)


def test_a_torn_connection_is_made_again_with_the_claim(
    database: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    async def test() -> None:
        conninfo = Secret(database)
        access = FleetTask(conninfo, "shop/LLD-1", (_submit(conninfo), 1, 1), "a", "k")
        store = PostgresItemStore(_task(tmp_path / "a", Path()), access)
        await claimed(store)
        async with store.open() as checkpoint:
            await checkpoint.note("answer draft-1", "kept")
            with psycopg.connect(postgres.admin_url, autocommit=True) as admin:
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                    (database.rpartition("/")[2],),
                )
            with pytest.raises(psycopg.OperationalError) as caught:
                await checkpoint.note("answer draft-2", "kept too")
            assert store.is_unavailable(caught.value) and not store.is_lost(caught.value)
            assert await store.unavailable() == ""
            await checkpoint.note("answer draft-2", "kept too")
            assert await checkpoint.count_answers() == 2
            assert isinstance(
                await store.claim(), Claim
            )  # its own claim, whose commit it may not have heard of
        await store.release()

    run(test)


def test_an_outranked_machine_writes_no_event_and_no_outcome(database: str) -> None:
    conninfo = Secret(database)
    submission = _submit(conninfo)
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute("UPDATE agentos_items SET claim = %s", ([submission, 2, 1],))
    writer = EventWriter(conninfo, lambda text: text)
    stale, current = ItemClaim("shop/LLD-1", (submission, 1, 3)), ItemClaim("shop/LLD-1", (submission, 2, 1))
    outcome = Outcome(Ending.FINISHED, Verdict.APPROVED)
    writer.write(stale, events.NodeStarted("LLD-1", "N1_design", 1), 1.0)
    assert writer.end(stale, "ended", outcome).result(30) is False
    writer.write(current, events.NodeStarted("LLD-1", "N3_review", 1), 2.0)
    assert writer.end(current, "ended", outcome).result(30) is True
    writer.close(5)
    with psycopg.connect(database) as reader:
        assert reader.execute("SELECT at FROM agentos_events").fetchall() == [(2.0,)]


def test_a_follower_misses_no_event_that_becomes_visible_late(database: str) -> None:
    """Numbers of a sequence are given out before they are committed: `id > last` would lose the first one here."""
    follower = FleetDatabase(Secret(database), "shop")
    submission = _submit(Secret(database))
    claim = f"{{{submission},1,1}}"
    insert = "INSERT INTO agentos_events (thread_id, at, event) VALUES ('shop/LLD-1', %s, %s)"
    event = '{"type":"node_started","item":"LLD-1","node":"N1","round":1}'
    with psycopg.connect(database) as slow, psycopg.connect(database) as fast:
        fast.execute("UPDATE agentos_items SET claim = %s::bigint[]", (claim,))
        fast.commit()
        cursor = follower.horizon()
        for connection, at in ((slow, 1.0), (fast, 2.0)):
            connection.execute("SELECT set_config('agentos.claim', %s, false)", (claim,))
            connection.execute(insert, (at, event))
        fast.commit()
        before, cursor = follower.events_after(cursor, ["LLD-1"])
        slow.commit()
        after, cursor = follower.events_after(cursor, ["LLD-1"])
        again, _ = follower.events_after(cursor, ["LLD-1"])
    follower.close()
    assert sorted(found.at for found in (*before, *after)) == [1.0, 2.0]
    assert again == []


def test_a_submitted_file_that_its_item_moves_away_is_moved_in_the_project_unless_it_was_edited(
    database: str, tmp_path: Path
) -> None:
    brief, other = "ideas/active/1-a.md", "ideas/active/2-b.md"

    async def move_both(submission: int) -> None:
        access = FleetTask(
            Secret(database), "shop/LLD-1", (submission, 1, 1), "a", "k", ((brief, "# A"), (other, "# B"))
        )
        store = await claimed(PostgresItemStore(_task(tmp_path / "scratch", Path()), access))
        store.documents.move(brief, "ideas/done/1-a.md")
        store.documents.remove(other)
        await store.finish(lambda documents: None, Outcome(Ending.FINISHED, Verdict.APPROVED))
        await store.release()

    asyncio.run(move_both(_submit(Secret(database))))
    project = tmp_path / "project"
    (project / "ideas/active").mkdir(parents=True)
    (project / brief).write_text("# A")
    (project / other).write_text("# B, edited")
    found = FleetDatabase(Secret(database), "shop")
    assert Collector(found, project, Home(tmp_path / "home").open()).collect_all() == 1
    found.close()
    assert sorted(str(path.relative_to(project)) for path in project.rglob("*.md")) == [
        other,
        "ideas/done/1-a.md",
    ]


def _checkpoint() -> Any:
    from langgraph.checkpoint.base import empty_checkpoint

    return empty_checkpoint()
