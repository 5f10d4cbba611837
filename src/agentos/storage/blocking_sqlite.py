"""An SQLite connection with aiosqlite's interface that runs each statement in the calling thread.

aiosqlite has a thread per connection, and each of an item's hundred statements would switch to it and back. A worker has
one item and nothing else to do until its statement is done.
"""

import sqlite3
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class BlockingConnection:
    """The part of `aiosqlite.Connection` that LangGraph's AsyncSqliteSaver uses."""

    def __init__(self, database: Path | str, timeout: float) -> None:
        """`timeout` is how long a statement waits for another process's lock, in seconds."""
        self._database = sqlite3.connect(database, timeout=timeout)
        # The saver checks whether the connection's thread has been started.
        self._thread = self

    def is_alive(self) -> bool:
        return True

    def execute(self, sql: str, parameters: Iterable[Any] = ()) -> "_Result[BlockingCursor]":
        return _Result(lambda: BlockingCursor(self._database.execute(sql, tuple(parameters))))

    def executescript(self, script: str) -> "_Result[BlockingCursor]":
        return _Result(lambda: BlockingCursor(self._database.executescript(script)))

    def cursor(self) -> "_Result[BlockingCursor]":
        return _Result(lambda: BlockingCursor(self._database.cursor()))

    async def commit(self) -> None:
        self._database.commit()

    async def rollback(self) -> None:
        self._database.rollback()

    def serialize(self) -> bytes:
        return self._database.serialize()

    async def __aenter__(self) -> "BlockingConnection":
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._database.close()


class BlockingCursor:
    """The part of `aiosqlite.Cursor` that AsyncSqliteSaver uses."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor

    async def execute(self, sql: str, parameters: Iterable[Any] = ()) -> None:
        self._cursor.execute(sql, tuple(parameters))

    async def executemany(self, sql: str, parameters: Iterable[Iterable[Any]]) -> None:
        self._cursor.executemany(sql, [tuple(row) for row in parameters])

    async def fetchone(self) -> Any:
        return self._cursor.fetchone()

    async def fetchall(self) -> list[Any]:
        return self._cursor.fetchall()

    async def __aiter__(self) -> AsyncIterator[Any]:
        for row in self._cursor:
            yield row

    def close(self) -> None:
        self._cursor.close()


class _Result(AbstractAsyncContextManager[T], Generic[T]):
    """A cursor that can be awaited, or entered and closed at the end, because aiosqlite's callers do both."""

    def __init__(self, run: Callable[[], T]) -> None:
        self._run = run
        self._value: T | None = None

    def __await__(self) -> Generator[Any, None, T]:
        return (yield from self._run_at_once().__await__())

    async def _run_at_once(self) -> T:
        return self._run()

    async def __aenter__(self) -> T:
        self._value = self._run()
        return self._value

    async def __aexit__(self, *exception: object) -> None:
        if isinstance(self._value, BlockingCursor):
            self._value.close()
