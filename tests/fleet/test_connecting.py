"""Which of Postgres's errors are an outage, which items wait for, and which would only come again."""

import asyncio
from collections.abc import Callable

import psycopg
import pytest
from psycopg import errors

from agentos.core.text.secrets import Secret
from agentos.storage.postgres.connecting import connect_async, is_away, reconnect


@pytest.mark.parametrize(
    "error",
    [
        errors.AdminShutdown,
        errors.CannotConnectNow,
        errors.TooManyConnections,
        errors.DiskFull,
        errors.LockNotAvailable,
        errors.QueryCanceled,
        errors.ReadOnlySqlTransaction,
        errors.IdleInTransactionSessionTimeout,
        psycopg.OperationalError,
        psycopg.InterfaceError,
    ],
)
def test_an_outage_is_waited_for(error: type[Exception]) -> None:
    assert is_away(error())


@pytest.mark.parametrize(
    "error", [errors.ProgramLimitExceeded, errors.UniqueViolation, errors.SyntaxError, OSError]
)
def test_an_error_that_would_come_again_is_not(error: type[Exception]) -> None:
    assert not is_away(error())


@pytest.mark.slow
@pytest.mark.parametrize("end", [lambda c: c.execute("SELECT 1"), lambda c: None], ids=["query", "commit"])
def test_a_transaction_left_open_by_a_suspended_machine_is_an_outage(
    database: str, end: Callable[[psycopg.Connection], object]
) -> None:
    connection = reconnect(Secret(f"{database}?options=-c%20idle_in_transaction_session_timeout%3D50ms"))
    with pytest.raises(psycopg.Error) as found, connection.transaction():
        connection.execute("SELECT 1")
        _until_ended(database, connection)
        end(connection)
    assert is_away(found.value) and connection.closed


@pytest.mark.slow
def test_so_is_one_of_an_items_own_connection(database: str) -> None:
    async def test() -> None:
        connection = await connect_async(
            Secret(f"{database}?options=-c%20idle_in_transaction_session_timeout%3D50ms")
        )
        with pytest.raises(psycopg.Error) as found:
            async with connection.transaction():
                await connection.execute("SELECT 1")
                _until_ended(database, connection)
                await connection.execute("SELECT 1")
        assert is_away(found.value)

    asyncio.run(test())


def _until_ended(database: str, connection: "psycopg.Connection | psycopg.AsyncConnection") -> None:
    with psycopg.connect(database, autocommit=True) as other:
        for _ in range(1000):
            query = "SELECT pg_sleep(0.02), count(*) FROM pg_stat_activity WHERE pid = %s"
            row = other.execute(query, (connection.info.backend_pid,)).fetchone()
            if row and row[1] == 0:
                return
    raise TimeoutError("Postgres did not end the transaction")
