"""Connections to Postgres that notice a dead network, and what their errors mean."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row

from agentos.core.errors import PreflightError
from agentos.core.text.line_assembler import one_line
from agentos.core.text.secrets import Secret

CONNECT_TIMEOUT = 10  # seconds
OUTRANKED = "AG001"
"""SQLSTATE of a write whose claim is no longer the item's."""
# psycopg calls these internal errors: ended while idle in a transaction, ended after too long a transaction, read-only
# because another server is being made the primary.
_PASSING = ("25P03", "25P04", "25006")
_TOO_LARGE = "54"
"""The class of errors about what is too large for Postgres, which would be too large again."""
# The system's defaults take hours to notice that the other end is gone.
_NETWORK = {
    "connect_timeout": CONNECT_TIMEOUT,
    "keepalives": 1,
    "keepalives_idle": 10,  # seconds
    "keepalives_interval": 5,  # seconds
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds
}
# A frozen machine must not hold a row lock for longer than this.
_OPTIONS = "-c idle_in_transaction_session_timeout=10s -c lock_timeout=20s -c statement_timeout=60s"


# libpq keeps the SQLSTATE of a refused connection to itself: these are the server's, and PgBouncer's, words in English.
_NONE_FREE = (
    "too many clients",
    "too many connections",
    "connection slots are reserved",
    "no more connections allowed",
)
_REASON = re.compile(r"FATAL: +(.+)")


def connection_parameters(conninfo: Secret, name: str = "agentos") -> dict[str, Any]:
    """libpq's parameters: what the connection string or libpq's own variables say, with ours added."""
    given = _parsed(conninfo)
    options = f"{_OPTIONS} {given.get('options') or ''}".strip()
    return {**_NETWORK, "application_name": name, **given, "options": options}


def _parsed(conninfo: Secret) -> dict[str, Any]:
    try:
        return dict(conninfo_to_dict(conninfo.reveal()))
    except psycopg.Error as error:
        raise PreflightError(
            f"invalid AGENTOS_POSTGRES: {one_line(str(error))}; expected postgresql://user@host:port/database"
        ) from error


def with_timeout(conninfo: Secret, seconds: int) -> Secret:
    """The same, for somebody who waits in front of a screen; what the connection string itself says has priority."""
    wanted = {"connect_timeout": seconds, "tcp_user_timeout": 1000 * seconds}
    given = _parsed(conninfo)
    return Secret(
        make_conninfo(conninfo.reveal(), **{name: n for name, n in wanted.items() if name not in given})
    )


async def connect_async(conninfo: Secret) -> AsyncConnection[DictRow]:
    return await AsyncConnection.connect(
        **connection_parameters(conninfo), autocommit=True, prepare_threshold=0, row_factory=dict_row
    )


def connect(conninfo: Secret, name: str = "agentos") -> Connection[DictRow]:
    """A connection for a command: raises PreflightError, with what was tried, if there is none."""
    parameters = connection_parameters(conninfo, name)
    try:
        return Connection.connect(**parameters, autocommit=True, row_factory=dict_row)
    except psycopg.OperationalError as error:
        raise PreflightError(
            f"Postgres cannot be used ({one_line(str(error))}): check that it runs and accepts you, and set "
            "AGENTOS_POSTGRES=postgresql://user@host:port/database or PGHOST, PGUSER, PGDATABASE, PGPASSWORD"
        ) from error


def reconnect(conninfo: Secret, name: str = "agentos") -> Connection[DictRow]:
    """The same for a process at work: raises psycopg's own errors, which `is_away` knows."""
    return Connection.connect(**connection_parameters(conninfo, name), autocommit=True, row_factory=dict_row)


def refusal_text(error: BaseException) -> str:
    """Why the server refused a connection, in its own words; empty if it did not answer."""
    found = _REASON.findall(str(error))
    return one_line(found[-1]) if found else ""


def has_none_free(error: BaseException | None) -> bool:
    """Whether the server refused a connection because it has no free one."""
    return isinstance(error, psycopg.OperationalError) and any(words in str(error) for words in _NONE_FREE)


def is_away(error: BaseException) -> bool:
    """Whether Postgres cannot be reached or takes nothing for now: restarting, cut off, out of connections, full, failing
    over, or tired of a transaction that this machine left open while it was suspended."""
    if isinstance(error, psycopg.Error) and error.sqlstate:
        if error.sqlstate in _PASSING:
            return True
        if error.sqlstate.startswith(_TOO_LARGE):
            return False
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


@contextlib.contextmanager
def outages_reported() -> Iterator[None]:
    """For a command of a person, which does not wait: an outage in the middle of it becomes a PreflightError."""
    try:
        yield
    except Exception as error:
        if not is_away(error):
            raise
        raise PreflightError(
            f"Postgres went away ({one_line(str(error))[:200]}): what was stored is kept. Run the same command again"
        ) from error


def is_outranked(error: BaseException) -> bool:
    return isinstance(error, psycopg.Error) and error.sqlstate == OUTRANKED


def place_of(conninfo: Secret) -> str:
    """Where Postgres is, for messages; never with a password."""
    try:
        given = conninfo_to_dict(conninfo.reveal())
    except psycopg.Error:
        given = {}
    host, port = given.get("host") or "PGHOST", given.get("port")
    return f"Postgres at {host}{f':{port}' if port else ''}"
