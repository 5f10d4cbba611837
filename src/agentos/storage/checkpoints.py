"""One SQLite database per item: LangGraph's checkpoints, plus the model answers that were paid for."""

import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentos.core.errors import ItemError
from agentos.storage.files import private_folder

if TYPE_CHECKING:
    import aiosqlite
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

VERSION = 2
"""Since 2 an item may be parked: what does not know gates would walk past the person."""
_SETUP = """
PRAGMA secure_delete=ON;
PRAGMA journal_mode=WAL;
PRAGMA synchronous=NORMAL;
CREATE TABLE IF NOT EXISTS agentos_notes (name TEXT PRIMARY KEY, text TEXT NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An open database of one item: `saver` is for LangGraph, the notes are ours."""

    saver: "AsyncSqliteSaver"
    _connection: "aiosqlite.Connection"

    async def note(self, name: str, text: str) -> None:
        """Keeps a text; it is on disk when this returns."""
        async with self.saver.lock:
            try:
                await self._connection.execute(
                    "INSERT OR REPLACE INTO agentos_notes VALUES (?, ?)", (name, text)
                )
                await self._connection.commit()
            except sqlite3.Error:
                await self._connection.rollback()
                raise

    async def noted(self, name: str) -> str | None:
        async with self.saver.lock:
            cursor = await self._connection.execute("SELECT text FROM agentos_notes WHERE name = ?", (name,))
            row = await cursor.fetchone()
        return None if row is None else str(row[0])


@contextlib.asynccontextmanager
async def open_checkpoint(path: Path) -> AsyncIterator[Checkpoint]:
    """Opens or makes the database; one connection, every commit on disk before it counts."""
    import aiosqlite
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    private_folder(path.parent)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    async with aiosqlite.connect(path, timeout=10) as connection:
        await connection.executescript(_SETUP)
        await connection.execute(f"PRAGMA user_version={VERSION}")
        saver = AsyncSqliteSaver(connection)
        await saver.setup()
        # So far there is nothing to lose; the first commit from here on takes all of it to the disk.
        await connection.execute("PRAGMA synchronous=FULL")
        yield Checkpoint(saver, connection)


def check_checkpoint(path: Path) -> Path | None:
    """Moves a broken database aside and says where to; refuses one that a newer version wrote."""
    if not path.exists():
        # Whoever deleted it may have died before it came to the rest of the family.
        delete_checkpoint(path)
    if not path.exists() or path.stat().st_size == 0:
        return None
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=10)) as database:
            sound = database.execute("PRAGMA quick_check").fetchone()[0] == "ok"
            version = int(database.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError:
        sound, version = False, 0
    if version > VERSION:
        raise ItemError(
            f"its checkpoint was written by a newer agentos (format {version}, this one reads {VERSION})",
            (f"upgrade agentos, or start over with --fresh; the file is {path}",),
        )
    return None if sound else _set_aside(path)


def delete_checkpoint(path: Path) -> None:
    for name in _family(path):
        name.unlink(missing_ok=True)


def leftovers(folder: Path) -> set[str]:
    """The checkpoints that something is left of; -wal and -shm outlive one whose deletion was cut short."""
    if not folder.is_dir():
        return set()
    return {name.removesuffix("-wal").removesuffix("-shm") for name in os.listdir(folder)}


def read_notes(path: Path) -> dict[str, str]:
    """The notes of a kept checkpoint but the models' answers, read without writing anything."""
    if not path.exists():
        return {}
    mode = "ro" if path.with_name(path.name + "-wal").exists() else "ro&immutable=1"
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True)) as database:
            rows = database.execute("SELECT name, text FROM agentos_notes WHERE name NOT LIKE 'answer %'")
            return {str(name): str(text) for name, text in rows}
    except sqlite3.Error:
        return {}


def _set_aside(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.broken-{number}")).exists():
        number += 1
    path.rename(aside)
    for name in _family(path)[1:]:
        name.unlink(missing_ok=True)
    return aside


def _family(path: Path) -> list[Path]:
    return [
        path,
        path.with_name(path.name + "-wal"),
        path.with_name(path.name + "-shm"),
    ]
