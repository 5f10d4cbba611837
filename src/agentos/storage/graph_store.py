"""The SQLite store that a workflow's graphs share: LangGraph's long-term memory, in the home folder."""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from agentos.regular_files import open_regular
from agentos.storage.files import private_folder
from agentos.storage.locks import LockFile

if TYPE_CHECKING:
    import aiosqlite
    from langgraph.store.base import Item
    from langgraph.store.sqlite.aio import AsyncSqliteStore

BUSY_TIMEOUT = 60  # seconds to wait for other workers that write


@contextlib.asynccontextmanager
async def open_graph_store(path: Path) -> "AsyncIterator[AsyncSqliteStore]":
    """Open or create the store. Several workers may use it at a time; every `put` is durable when it returns."""
    private_folder(path.parent)
    if not os.path.exists(path):  # noqa: ASYNC240 - as quick as the open that follows
        await _create(path)
    os.close(open_regular(path, flags=os.O_RDWR))
    async with _connect(path) as connection, _store(connection) as store:
        await connection.execute("PRAGMA journal_mode=WAL")
        await connection.execute("PRAGMA synchronous=FULL")
        yield store


async def add_initial(path: Path, store: "AsyncSqliteStore", items: "Iterable[Item]") -> None:
    """Put what a module has put into its own store when it was loaded. Each value once: nodes may change it afterwards."""
    lock = LockFile(path.with_suffix(".lock"))
    lock.wait()  # another worker may do the same, and a node of its item may already change the value
    try:
        await store.conn.execute(
            "CREATE TABLE IF NOT EXISTS agentos_initial (name TEXT PRIMARY KEY, digest TEXT NOT NULL)"
        )
        async with store.conn.execute("SELECT name, digest FROM agentos_initial") as rows:
            added = {name: digest async for name, digest in rows}
        for item in items:
            name = json.dumps([*item.namespace, item.key])
            digest = hashlib.sha256(json.dumps(item.value, sort_keys=True, default=str).encode()).hexdigest()
            if added.get(name) != digest:
                await store.aput(item.namespace, item.key, item.value)
                await store.conn.execute(
                    "INSERT OR REPLACE INTO agentos_initial VALUES (?, ?)", (name, digest)
                )
    finally:
        lock.release()


async def _create(path: Path) -> None:
    """Create the tables in a private file first, because two workers cannot migrate one file at the same time."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        new = Path(folder) / path.name
        os.close(open_regular(new, flags=os.O_RDWR | os.O_CREAT))
        async with _connect(new) as connection, _store(connection):
            pass
        with contextlib.suppress(FileExistsError):
            os.link(new, path)


@contextlib.asynccontextmanager
async def _connect(path: Path) -> "AsyncIterator[aiosqlite.Connection]":
    import aiosqlite

    async with aiosqlite.connect(path, timeout=BUSY_TIMEOUT, isolation_level=None) as connection:
        yield connection


@contextlib.asynccontextmanager
async def _store(connection: "aiosqlite.Connection") -> "AsyncIterator[AsyncSqliteStore]":
    from langgraph.store.sqlite.aio import AsyncSqliteStore

    async with AsyncSqliteStore(connection) as store:
        await store.setup()
        yield store
