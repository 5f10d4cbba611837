"""The database of an item's checkpoint: how a new one is made, and that LangGraph's saver works on it."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any, TypedDict

import aiosqlite
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph

from agentos.storage.checkpoints import VERSION, open_checkpoint, read_notes

CONFIG: Any = {"configurable": {"thread_id": "LLD-42"}}


class State(TypedDict, total=False):
    text: str


def graph() -> "StateGraph[State, Any, Any, Any]":
    built: StateGraph[State, Any, Any, Any] = StateGraph(State)
    built.add_node("write", lambda state: {"text": state["text"] + "!"})
    built.add_edge(START, "write")
    built.add_edge("write", END)
    return built


def schema(path: Path) -> list[Any]:
    with contextlib.closing(sqlite3.connect(path)) as database:
        return database.execute(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"
        ).fetchall()


async def run_graph(path: Path) -> Any:
    async with open_checkpoint(path) as checkpoint:
        compiled = graph().compile(checkpointer=checkpoint.saver)
        await compiled.ainvoke({"text": "hello"}, CONFIG, durability="sync")
        history = [snapshot.values async for snapshot in compiled.aget_state_history(CONFIG)]
        return (await compiled.aget_state(CONFIG)).values, history


def test_a_graph_runs_on_the_database_and_is_read_back_by_another_connection(tmp_path: Path) -> None:
    path = tmp_path / "item.db"
    values, history = asyncio.run(run_graph(path))
    assert values == {"text": "hello!"} and len(history) == 3

    async def read_with_aiosqlite() -> Any:
        async with aiosqlite.connect(path) as connection:
            compiled = graph().compile(checkpointer=AsyncSqliteSaver(connection))
            return (await compiled.aget_state(CONFIG)).values

    assert asyncio.run(read_with_aiosqlite()) == values


def test_a_new_database_has_the_tables_that_the_saver_would_make(tmp_path: Path) -> None:
    async def make() -> None:
        async with open_checkpoint(tmp_path / "ours.db") as checkpoint:
            await checkpoint.note("node", "N1_design")
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "theirs.db")) as saver:
            await saver.setup()

    asyncio.run(make())
    ours, theirs = schema(tmp_path / "ours.db"), schema(tmp_path / "theirs.db")
    assert [row for row in ours if row in theirs] == theirs
    with contextlib.closing(sqlite3.connect(tmp_path / "ours.db")) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert database.execute("PRAGMA user_version").fetchone() == (VERSION,)
        assert database.execute("PRAGMA quick_check").fetchone() == ("ok",)


def test_every_commit_is_synced_to_disk(tmp_path: Path) -> None:
    async def setting() -> Any:
        async with open_checkpoint(tmp_path / "item.db") as checkpoint:
            cursor = await checkpoint._connection.execute("PRAGMA synchronous")
            return await cursor.fetchone()

    assert asyncio.run(setting()) == (2,)  # FULL


def test_a_log_that_was_left_behind_does_not_get_into_a_new_database(tmp_path: Path) -> None:
    path = tmp_path / "item.db"

    async def leave_a_log() -> bytes:
        async with open_checkpoint(path) as checkpoint:
            await checkpoint.note("node", "N4_finalize")
            return path.with_name("item.db-wal").read_bytes()

    log = asyncio.run(leave_a_log())
    path.write_bytes(b"")
    path.with_name("item.db-wal").write_bytes(log)

    async def read() -> str | None:
        async with open_checkpoint(path) as checkpoint:
            return await checkpoint.noted("node")

    assert asyncio.run(read()) is None


def test_a_database_from_before_is_kept_and_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "item.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE agentos_notes (name TEXT PRIMARY KEY, text TEXT NOT NULL)")
        database.execute("INSERT INTO agentos_notes VALUES ('node', 'N3_review')")
        database.commit()
    asyncio.run(run_graph(path))
    assert read_notes(path) == {"node": "N3_review"}
