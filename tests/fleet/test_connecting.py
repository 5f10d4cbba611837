"""Which of Postgres's errors are an outage, which items wait for, and which would only come again."""

import asyncio

import psycopg
import pytest
from psycopg import errors

from agentos.core.text.secrets import Secret
from agentos.storage.postgres.connecting import connect_async, is_away, reconnect
from tests.fleet.harness import Fleet


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
def test_a_transaction_left_open_by_a_suspended_machine_is_an_outage(database: str) -> None:
    connection = reconnect(_impatient(database))
    found: list[BaseException] = []
    try:
        with connection.transaction():
            connection.execute("SELECT 1")
            _until_ended(database, connection.info.backend_pid)
    except psycopg.Error as error:
        found.append(error)
    assert [is_away(error) for error in found] == [True]
    assert connection.closed


@pytest.mark.slow
def test_so_is_one_of_an_items_own_connection(database: str) -> None:
    async def test() -> BaseException | None:
        connection = await connect_async(_impatient(database))
        try:
            async with connection.transaction():
                await connection.execute("SELECT 1")
                _until_ended(database, connection.info.backend_pid)
                await connection.execute("SELECT 1")
        except psycopg.Error as error:
            return error
        return None

    error = asyncio.run(test())
    assert error is not None and is_away(error)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_submission_that_postgres_interrupts_says_so_and_can_be_repeated(fleet: Fleet) -> None:
    fleet.issues(1)
    with psycopg.connect(fleet.database) as connection:
        connection.execute(
            "CREATE FUNCTION away() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$;"
            "CREATE TRIGGER away BEFORE INSERT ON agentos_submissions FOR EACH ROW EXECUTE FUNCTION away()"
        )
    found = fleet.run("lld-workflow", "--all", "--fleet", "--detach")
    assert (found.returncode, "Postgres went away" in found.stderr) == (3, True), found.stderr
    with psycopg.connect(fleet.database) as connection:
        connection.execute("DROP TRIGGER away ON agentos_submissions")
    again = fleet.run("lld-workflow", "--all", "--fleet", "--detach")
    assert (again.returncode, "Submitted 1 item" in again.stdout) == (0, True), again.stderr


def _impatient(database: str) -> Secret:
    return Secret(f"{database}?options=-c%20idle_in_transaction_session_timeout%3D50ms")


def _until_ended(database: str, pid: int) -> None:
    with psycopg.connect(database, autocommit=True) as other:
        for _ in range(1000):
            query = "SELECT pg_sleep(0.02), count(*) FROM pg_stat_activity WHERE pid = %s"
            row = other.execute(query, (pid,)).fetchone()
            if row and row[1] == 0:
                return
    raise TimeoutError("Postgres did not end the transaction")
