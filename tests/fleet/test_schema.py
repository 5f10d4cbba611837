"""The tables of a fleet: created once, migrated, and refused where they are missing, older or newer."""

import threading
import uuid

import psycopg
import pytest

from agentos.core.errors import PreflightError
from agentos.core.text.secrets import Secret
from agentos.storage.postgres.connecting import connect
from agentos.storage.postgres.schema import VERSION, check_tables, create_tables
from tests.fleet.servers import PostgresServer


def test_tables_of_the_first_version_are_migrated_once_by_many(database: str) -> None:
    with psycopg.connect(database) as first:
        first.execute("DROP INDEX agentos_events_thread_id_written_id_idx")
        first.execute("UPDATE agentos_version SET version = 1")
    with connect(Secret(database)) as connection, pytest.raises(PreflightError, match="older agentos"):
        check_tables(connection)
    changed: list[bool] = []

    def migrate() -> None:
        with connect(Secret(database)) as connection:
            changed.append(create_tables(connection))

    threads = [threading.Thread(target=migrate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(changed) == [False, False, False, True]
    with connect(Secret(database)) as connection:
        check_tables(connection)
        indexes = connection.execute("SELECT indexname FROM pg_indexes WHERE tablename = 'agentos_events'")
        assert len(indexes.fetchall()) == 3


def test_missing_and_newer_tables_say_what_to_type(postgres: PostgresServer, database: str) -> None:
    empty = f"empty_{uuid.uuid4().hex}"
    with psycopg.connect(postgres.admin_url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {empty}".encode())
    with (
        connect(Secret(postgres.url(empty))) as connection,
        pytest.raises(PreflightError, match="create them with agentos fleet init"),
    ):
        check_tables(connection)
    with psycopg.connect(database) as older:
        older.execute("UPDATE agentos_version SET version = %s", (VERSION + 1,))
    with connect(Secret(database)) as connection:
        for look in (check_tables, create_tables):
            with pytest.raises(PreflightError, match="upgrade agentos on this machine"):
                look(connection)
