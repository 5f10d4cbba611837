"""Searches everything that Postgres and Temporal keep, in their files and, since both may compress or split a value, row by row."""

import sqlite3
import zlib
from collections.abc import Iterator

import psycopg
from psycopg import sql

from tests.fleet.servers import PostgresServer, TemporalServer, content_of


def found_in_postgres(server: PostgresServer, url: str, text: str) -> list[str]:
    """Where the text is: files of the server, and tables of this database."""
    found = ["a file"] if text.encode() in server.contents() else []
    return found + sorted({table for table, value in _postgres_values(url) if text.encode() in value})


def found_in_temporal(server: TemporalServer, text: str) -> list[str]:
    files = sorted(server.file.parent.glob("temporal.db*"))
    found = [path.name for path in files if text.encode() in content_of(path)]
    return found + sorted({table for table, value in _sqlite_values(server) if text.encode() in value})


def _postgres_values(url: str) -> Iterator[tuple[str, bytes]]:
    with psycopg.connect(url) as connection:
        tables = connection.execute(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
        for schema, table in tables:
            rows = connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema, table)))
            for row in rows:
                for value in row:
                    yield from ((table, each) for each in _bytes_of(value))


def _sqlite_values(server: TemporalServer) -> Iterator[tuple[str, bytes]]:
    connection = sqlite3.connect(f"file:{server.file}?mode=ro", uri=True, timeout=30)
    try:
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                for value in row:
                    yield from ((table, each) for each in _bytes_of(value))
    finally:
        connection.close()


def _bytes_of(value: object) -> Iterator[bytes]:
    """The value, also as it was before it was compressed."""
    content = bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode("utf-8", "replace")
    yield content
    try:
        yield zlib.decompress(content)
    except zlib.error:
        return
