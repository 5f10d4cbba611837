"""One SQLite database per item: LangGraph's checkpoints, and the model responses already paid for."""

import contextlib
import errno
import os
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentos.core.errors import ItemError
from agentos.regular_files import open_regular
from agentos.storage.blocking_sqlite import BlockingConnection
from agentos.storage.files import private_folder

if TYPE_CHECKING:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

# 2: items can be parked at a human gate, which a version that does not know gates would skip.
VERSION = 2
LOCK_TIMEOUT = 10.0  # seconds to wait for another process that writes to the same database
_NOTES = "CREATE TABLE IF NOT EXISTS agentos_notes (name TEXT PRIMARY KEY, text TEXT NOT NULL)"
LOG_SUFFIXES = ("-wal", "-shm")
_WAL_MARKS = slice(18, 20)  # bytes of an SQLite file that give its journal mode

# The content of a database without checkpoints; the same for every item, and empty until it is first needed.
_empty_database = bytearray()


@dataclass(frozen=True, slots=True)
class SqliteCheckpoint:
    """The open database of one item: `saver` for LangGraph, and named notes for agentos itself."""

    saver: "AsyncSqliteSaver"
    _connection: BlockingConnection

    async def note(self, name: str, text: str) -> None:
        """Store a note. It is on disk when this returns."""
        await self._write("INSERT OR REPLACE INTO agentos_notes VALUES (?, ?)", name, text)

    async def forget(self, name: str) -> None:
        """Delete a note, if there is one."""
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
    """Open or create the database, with one connection and every commit synced to disk."""
    from agentos.storage.sqlite_saver import WholeOutputSaver

    await prepare_database()
    private_folder(path.parent)
    is_new = _create(path)
    async with BlockingConnection(path, LOCK_TIMEOUT) as connection:
        await connection.executescript("PRAGMA secure_delete=ON; PRAGMA synchronous=FULL")
        saver = WholeOutputSaver(connection)  # type: ignore[arg-type]
        if is_new:
            saver.is_setup = True
        else:
            await _set_up(saver, connection)
        yield SqliteCheckpoint(saver, connection)


@contextlib.asynccontextmanager
async def open_in_memory() -> AsyncIterator[SqliteCheckpoint]:
    """A checkpoint in memory, which is lost when it is closed."""
    from agentos.storage.sqlite_saver import WholeOutputSaver

    async with BlockingConnection(":memory:", LOCK_TIMEOUT) as connection:
        saver = WholeOutputSaver(connection)  # type: ignore[arg-type]
        await _set_up(saver, connection)
        yield SqliteCheckpoint(saver, connection)


async def prepare_database() -> None:
    """Prepare the content of a new database, once per process: creating the tables takes longer than writing the file."""
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    if not _empty_database:
        async with BlockingConnection(":memory:", LOCK_TIMEOUT) as connection:
            await _set_up(AsyncSqliteSaver(connection), connection)  # type: ignore[arg-type]
            content = bytearray(connection.serialize())
        content[_WAL_MARKS] = b"\2\2"
        _empty_database[:] = content


async def _set_up(saver: "AsyncSqliteSaver", connection: BlockingConnection) -> None:
    await connection.execute(_NOTES)
    await connection.execute(f"PRAGMA user_version={VERSION}")
    await saver.setup()


def _create(path: Path) -> bool:
    """Create the database unless it exists; return whether it is new.

    The file is synced before SQLite opens it, because SQLite ignores a journal without a database.
    """
    descriptor = open_regular(path, flags=os.O_RDWR | os.O_CREAT)
    try:
        if os.fstat(descriptor).st_size:
            return False
        delete_checkpoint(path, suffixes=LOG_SUFFIXES)
        if os.write(descriptor, _empty_database) < len(_empty_database):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, 0)
        raise
    finally:
        os.close(descriptor)
    return True


def check_checkpoint(path: Path) -> Path | None:
    """Move a corrupt database aside and return its new path; raise if a newer version wrote it."""
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


def delete_checkpoint(path: Path, suffixes: tuple[str, ...] = ("", *LOG_SUFFIXES)) -> None:
    for suffix in suffixes:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def leftovers(folder: Path) -> set[str]:
    """The names of checkpoints with at least one file left: -wal and -shm remain when a deletion is interrupted."""
    if not folder.is_dir():
        return set()
    return {name.removesuffix("-wal").removesuffix("-shm") for name in os.listdir(folder)}


def read_notes(path: Path) -> dict[str, str]:
    """The notes of a checkpoint except the stored model responses. Writes nothing, not even SQLite's own files."""
    return _read(path, "SELECT name, text FROM agentos_notes WHERE name NOT LIKE 'answer %'")


def read_answers(path: Path) -> list[str]:
    """The stored model responses of a checkpoint. Writes nothing, like `read_notes`."""
    return [*_read(path, "SELECT name, text FROM agentos_notes WHERE name LIKE 'answer %'").values()]


def _read(path: Path, query: str) -> dict[str, str]:
    if not path.exists():
        return {}
    mode = "ro" if path.with_name(path.name + "-wal").exists() else "ro&immutable=1"
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True)) as database:
            return {str(name): str(text) for name, text in database.execute(query)}
    except sqlite3.Error:
        return {}


def write_note(path: Path, name: str, text: str) -> None:
    """Store a note durably in a database that no worker has open."""
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
