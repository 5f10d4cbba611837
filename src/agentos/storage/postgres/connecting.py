"""Connects to Postgres so that a dead network is noticed, and classifies its errors."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection, pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row

from agentos.core.errors import PreflightError
from agentos.core.text.line_assembler import one_line
from agentos.core.text.secrets import Secret

CONNECT_TIMEOUT = 10  # seconds
OUTRANKED = "AG001"
"""SQLSTATE of a write with an outranked claim."""
# psycopg reports these as internal errors: session ended while idle in a transaction, session ended after too long a
# transaction, server read-only while another one becomes the primary.
_PASSING = ("25P03", "25P04", "25006")
_TOO_LARGE = "54"
"""Error class of values that are too large for Postgres; retrying would not help."""
# With the system's defaults it takes hours to notice that the other end is gone.
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


# libpq does not expose the SQLSTATE of a refused connection, so these are the English messages of Postgres and PgBouncer.
_NONE_FREE = (
    "too many clients",
    "too many connections",
    "connection slots are reserved",
    "no more connections allowed",
)
_REASON = re.compile(r"FATAL: +(.+)")


def connection_parameters(conninfo: Secret, name: str = "agentos") -> dict[str, Any]:
    """libpq's parameters from the connection string or libpq's own variables, plus ours."""
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
    """The same with a short connect timeout, for a person who is waiting; the connection string has priority."""
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
    """A connection for a command. Raises PreflightError with what was tried if it fails."""
    parameters = connection_parameters(conninfo, name)
    try:
        return Connection.connect(**parameters, autocommit=True, row_factory=dict_row)
    except psycopg.OperationalError as error:
        raise PreflightError(
            f"Postgres cannot be used ({_reason(error)}): check that it is running and accepts your user, and set "
            "AGENTOS_POSTGRES=postgresql://user@host:port/database or PGHOST, PGUSER, PGDATABASE, PGPASSWORD"
        ) from error


def reconnect(conninfo: Secret, name: str = "agentos") -> Connection[DictRow]:
    """The same for a worker process: raises psycopg's own errors, which `is_away` classifies."""
    return Connection.connect(**connection_parameters(conninfo, name), autocommit=True, row_factory=dict_row)


def _reason(error: Exception) -> str:
    """What libpq says, without its hints, which are indented."""
    text = "\n".join(line for line in str(error).splitlines() if not line.startswith("\t"))
    return one_line(text.removeprefix("connection is bad: ").removeprefix("connection failed: "))


def refusal_text(error: BaseException) -> str:
    """The server's reason for refusing a connection; empty if it did not answer."""
    found = _REASON.findall(str(error))
    return one_line(found[-1]) if found else ""


def has_none_free(error: BaseException | None) -> bool:
    """Whether the server refused a connection because none is free."""
    return isinstance(error, psycopg.OperationalError) and any(words in str(error) for words in _NONE_FREE)


def is_away(error: BaseException) -> bool:
    """Whether Postgres is temporarily unusable: unreachable, restarting, out of connections, out of disk space, failing over,
    or it ended a transaction that this machine left open while it was suspended."""
    if isinstance(error, psycopg.Error) and error.sqlstate:
        if error.sqlstate in _PASSING:
            return True
        if error.sqlstate.startswith(_TOO_LARGE):
            return False
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


@contextlib.contextmanager
def outages_reported() -> Iterator[None]:
    """For commands, which do not wait: turn an outage while they run into a PreflightError."""
    try:
        yield
    except Exception as error:
        if not is_away(error):
            raise
        raise PreflightError(
            f"Postgres went away ({_reason(error)[:200]}): what was stored is kept. Run the same command again"
        ) from error


def is_outranked(error: BaseException) -> bool:
    return isinstance(error, psycopg.Error) and error.sqlstate == OUTRANKED


def address_text(conninfo: Secret) -> str:
    """The address of Postgres for messages, without a password."""
    defaults = {each.keyword: each.val or b"" for each in pq.Conninfo.get_defaults()}
    try:
        given = conninfo_to_dict(conninfo.reveal())
    except psycopg.Error:
        given = {}
    host = given.get("host") or defaults[b"host"].decode() or "the local socket"
    return f"Postgres at {host}:{given.get('port') or defaults[b'port'].decode()}"
