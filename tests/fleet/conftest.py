"""One Postgres and one Temporal per test session; a database from a template and a namespace of names per test."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from agentos.core.text.secrets import Secret
from agentos.storage.postgres.connecting import connect
from agentos.storage.postgres.schema import create_tables
from tests.fleet.harness import Fleet
from tests.fleet.servers import MissingServer, PostgresServer, TemporalServer

TEMPLATE = "agentos_template"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    try:
        server = PostgresServer()
    except MissingServer as error:
        pytest.skip(str(error))
    try:
        server.start()
        with psycopg.connect(server.admin_url, autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {TEMPLATE}".encode())
        with connect(Secret(server.url(TEMPLATE))) as connection:
            create_tables(connection)
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def temporal() -> Iterator[TemporalServer]:
    server = TemporalServer()
    try:
        server.start()
        yield server
    except MissingServer as error:
        pytest.skip(str(error))
    finally:
        server.close()


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    """The connection string of a fresh database with the tables."""
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres.admin_url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}".encode())
    return postgres.url(name)


@pytest.fixture
def fleet(
    postgres: PostgresServer, temporal: TemporalServer, database: str, tmp_path: Path
) -> Iterator[Fleet]:
    with Fleet(tmp_path, postgres, temporal, database) as fleet:
        yield fleet
