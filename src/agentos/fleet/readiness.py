"""The checks of `agentos doctor` for a fleet: Postgres and its connections, the tables, Temporal, the gateway."""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from agentos.config.settings import FleetAccess, Settings
from agentos.core.errors import PreflightError
from agentos.fleet.gateway_access import gateway_credentials
from agentos.fleet.temporal import connect_temporal
from agentos.outputs.format import count
from agentos.storage.postgres.connecting import address_text, connect, has_none_free
from agentos.storage.postgres.connection_limits import OWN, ConnectionLimits, connection_limits
from agentos.storage.postgres.schema import check_tables

RAISE_LIMIT = "raise max_connections in postgresql.conf, or the limit of the role or database, or start workers with a smaller --parallel"


@dataclass(frozen=True, slots=True)
class FleetCheck:
    """The result of one check; `fix` is empty if it passed."""

    what: str
    found: str
    fix: str = ""


def check_fleet(settings: Settings, access: FleetAccess) -> Iterator[FleetCheck]:
    """Check everything that a worker or a submission needs, in the order in which it would fail."""
    yield from _check_postgres(access)
    try:
        client = asyncio.run(connect_temporal())
        address = client.service_client.config.target_host
        yield FleetCheck("temporal", f"reachable at {address}, namespace {client.namespace}")
    except PreflightError as error:
        yield FleetCheck("temporal", "cannot be used", str(error))
    if not settings.fleet.project:
        yield FleetCheck(
            "fleet", "no project name: workers need none, a project does (see docs/how-to/fleet.md)"
        )
    if access.token is None:
        yield FleetCheck("gateway", "no AGENTOS_GATEWAY_TOKEN: only a worker needs one")
        return
    try:
        found = ", ".join(key.provider for key in gateway_credentials(settings, access))
        yield FleetCheck("gateway", f"{access.gateway or settings.fleet.gateway} has keys for {found}")
    except PreflightError as error:
        yield FleetCheck("gateway", "cannot be used", str(error))


def _check_postgres(access: FleetAccess) -> Iterator[FleetCheck]:
    place = address_text(access.postgres)
    try:
        connection = connect(access.postgres)
    except PreflightError as error:
        fix = RAISE_LIMIT if has_none_free(error.__cause__) else str(error)
        found = "no connection is free" if has_none_free(error.__cause__) else "cannot be used"
        yield FleetCheck("postgres", f"{place}: {found}", fix)
        return
    with contextlib.closing(connection):
        try:
            check_tables(connection)
            yield FleetCheck("postgres", f"{place}: its tables are up to date")
        except PreflightError as error:
            yield FleetCheck("postgres", f"{place}: its tables cannot be used", str(error))
        yield _check_connections(connection_limits(connection))


def _check_connections(limits: ConnectionLimits) -> FleetCheck:
    room = f"{count(limits.available, 'connection')} for the fleet"
    if not limits.workers:
        return FleetCheck(
            "connections", f"{room}; no worker is connected. Each needs one per item and {OWN} more"
        )
    found = f"{room}; {count(len(limits.workers), 'worker')} with {sum(limits.workers)} items at a time need {limits.needed}"
    return FleetCheck("connections", found, RAISE_LIMIT if limits.needed > limits.available else "")
