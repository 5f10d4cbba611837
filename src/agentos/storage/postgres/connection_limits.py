"""How many connections Postgres allows, and how many the workers of a fleet need."""

import re
from dataclasses import dataclass

from psycopg import Connection
from psycopg.rows import DictRow

OWN = 2  # connections of a worker in addition to its items': one for reading, one for events
COMMANDS = 3  # connections reserved for commands that submit, follow and collect
_NAME = re.compile(r"agentos worker (\d+)")


def worker_name(parallel: int) -> str:
    """The application name of a worker's own connection in Postgres."""
    return f"agentos worker {parallel}"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The connections that a fleet may use and needs. `available` is what Postgres allows this role and database, minus the connections of programs other than agentos.
    `workers` are the numbers of items that the connected workers run at a time."""

    available: int
    workers: tuple[int, ...]

    @property
    def needed(self) -> int:
        return sum(items + OWN for items in self.workers) + COMMANDS


def connection_limits(connection: Connection[DictRow]) -> ConnectionLimits:
    """Query the limits and current connections. Raises psycopg's errors."""
    row = connection.execute(
        "SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int "
        "- coalesce(current_setting('reserved_connections', true), '0')::int AS server, "
        "(SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user) AS role, "
        "(SELECT datconnlimit FROM pg_database WHERE datname = current_database()) AS database"
    ).fetchone()
    assert row is not None
    shown = connection.execute(
        "SELECT coalesce(application_name, '') AS name, usename = current_user AS role, "
        "datname = current_database() AS database, true AS server "
        "FROM pg_stat_activity WHERE backend_type = 'client backend'"
    ).fetchall()
    others = [entry for entry in shown if not str(entry["name"]).startswith("agentos")]
    available = [
        int(row[limit]) - sum(bool(entry[limit]) for entry in others)
        for limit in ("server", "role", "database")
        if int(row[limit]) >= 0  # -1: no limit
    ]
    found = [_NAME.fullmatch(str(entry["name"])) for entry in shown if entry["database"]]
    return ConnectionLimits(min(available), tuple(int(match[1]) for match in found if match))
