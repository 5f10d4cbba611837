"""One SQLite database per item: LangGraph's checkpoints, plus the model responses already paid for."""

import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentos.core.errors import ItemError
from agentos.regular_files import open_regular
from agentos.storage.files import private_folder

if TYPE_CHECKING:
    import aiosqlite
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

# 2: items can be parked at a human gate, which a version that does not know gates would skip.
VERSION = 2
_SETUP = """
PRAGMA secure_delete=ON;
PRAGMA journal_mode=WAL;
PRAGMA synchronous=NORMAL;
CREATE TABLE IF NOT EXISTS agentos_notes (name TEXT PRIMARY KEY, text TEXT NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class SqliteCheckpoint:
    """The open database of one item: `saver` for LangGraph, and named notes for agentos itself."""

    saver: "AsyncSqliteSaver"
    _connection: "aiosqlite.Connection"

    async def note(self, name: str, text: str) -> None:
        """Stores a note. It is on disk when this returns."""
        await self._write("INSERT OR REPLACE INTO agentos_notes VALUES (?, ?)", name, text)

    async def forget(self, name: str) -> None:
        """Deletes a note, if there is one."""
        await self._write("DELETE FROM agentos_notes WHERE name = ?", name)

    async def _write(self, statement: str, *values: str) -> None:
        async with self.saver.lock:
            try:
                await self._connection.execute(statement, values)
                await self._connection.commit()
            except sqlite3.Error:
                await self._connection.rollback()
                raise

    async def noted(self, name: str) -> str | None:
        async with self.saver.lock:
            cursor = await self._connection.execute("SELECT text FROM agentos_notes WHERE name = ?", (name,))
            row = await cursor.fetchone()
        return None if row is None else str(row[0])

    async def count_answers(self) -> int:
        """How many model responses are stored."""
        async with self.saver.lock:
            cursor = await self._connection.execute(
                "SELECT COUNT(*) FROM agentos_notes WHERE name LIKE 'answer %'"
            )
            row = await cursor.fetchone()
        return int(row[0]) if row else 0


@contextlib.asynccontextmanager
async def open_checkpoint(path: Path) -> AsyncIterator[SqliteCheckpoint]:
    """Opens or creates the database, with one connection and every commit synced to disk."""
    import aiosqlite
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    private_folder(path.parent)
    os.close(open_regular(path, flags=os.O_RDWR | os.O_CREAT))
    async with aiosqlite.connect(path, timeout=10) as connection:
        await connection.executescript(_SETUP)
        await connection.execute(f"PRAGMA user_version={VERSION}")
        saver = AsyncSqliteSaver(connection)
        await saver.setup()
        # Creating the tables need not be durable: the next commit, which must be, syncs them too.
        await connection.execute("PRAGMA synchronous=FULL")
        yield SqliteCheckpoint(saver, connection)


def check_checkpoint(path: Path) -> Path | None:
    """Moves a corrupt database aside and returns its new path; raises if a newer version wrote it."""
    if not path.exists():
        # A process that was killed while deleting it may have left the -wal and -shm files.
        delete_checkpoint(path)
    if not path.exists():
        return None
    os.close(open_regular(path))  # refuses a link, a folder or a pipe
    if path.stat().st_size == 0:
        return None
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=10)) as database:
            intact = database.execute("PRAGMA quick_check").fetchone()[0] == "ok"
            version = int(database.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError:
        intact, version = False, 0
    if version > VERSION:
        raise ItemError(
            f"its checkpoint was written by a newer agentos (format {version}; this version reads up to {VERSION})",
            (f"upgrade agentos, or start over with --fresh; the file is {path}",),
        )
    return None if intact else _move_aside(path)


def delete_checkpoint(path: Path) -> None:
    for file in _database_files(path):
        file.unlink(missing_ok=True)


def leftovers(folder: Path) -> set[str]:
    """The names of checkpoints with at least one file left: -wal and -shm remain when a deletion is interrupted."""
    if not folder.is_dir():
        return set()
    return {name.removesuffix("-wal").removesuffix("-shm") for name in os.listdir(folder)}


def read_notes(path: Path) -> dict[str, str]:
    """The notes of a checkpoint except the stored model responses. Writes nothing, not even SQLite's own files."""
    if not path.exists():
        return {}
    mode = "ro" if path.with_name(path.name + "-wal").exists() else "ro&immutable=1"
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True)) as database:
            rows = database.execute("SELECT name, text FROM agentos_notes WHERE name NOT LIKE 'answer %'")
            return {str(name): str(text) for name, text in rows}
    except sqlite3.Error:
        return {}


def write_note(path: Path, name: str, text: str) -> None:
    """Stores a note durably in a database that no worker has open."""
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=10)) as database:
        database.execute("PRAGMA synchronous=FULL")
        with database:
            database.execute("INSERT OR REPLACE INTO agentos_notes VALUES (?, ?)", (name, text))


def _move_aside(path: Path) -> Path:
    number = 1
    while (target := path.with_name(f"{path.name}.broken-{number}")).exists():
        number += 1
    path.rename(target)
    delete_checkpoint(path)
    return target


def _database_files(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm")]
