"""`agentos fleet`: prepares Postgres for a fleet and says what is missing. Also what all fleet commands share."""

import contextlib
import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from agentos.config.settings import Settings
    from agentos.storage.item_store import ProjectItems
    from agentos.storage.postgres.fleet_items import FleetDatabase

MODULES = {"temporalio": "temporalio", "psycopg": "psycopg", "langgraph.checkpoint.postgres": "langgraph"}


def require_fleet() -> None:
    """Raises PreflightError if the extra is not installed."""
    from agentos.core.errors import PreflightError

    for module, package in MODULES.items():
        found = importlib.util.find_spec(package) and importlib.util.find_spec(module)
        if not found:
            raise PreflightError(
                f"a fleet needs {module}, which is not installed: type pip install 'agentos-runner[fleet]'"
            )


@contextlib.contextmanager
def open_fleet(settings: "Settings") -> "Iterator[FleetDatabase]":
    """The fleet's database, for this project. Raises PreflightError if it cannot be used."""
    require_fleet()
    from agentos.config.settings import fleet_access
    from agentos.fleet.submit import fleet_project
    from agentos.storage.postgres.connecting import outages_reported
    from agentos.storage.postgres.fleet_items import FleetDatabase
    from agentos.storage.postgres.schema import check_tables

    database = FleetDatabase(fleet_access().postgres, fleet_project(settings))
    with contextlib.closing(database), outages_reported():
        check_tables(database.connection)
        yield database


@contextlib.contextmanager
def fleet_reviews(settings: "Settings") -> "Iterator[ProjectItems]":
    """The fleet's items that wait for a person. On exit, however it happens, decided items are signalled to continue."""
    import tempfile
    from pathlib import Path

    from agentos.storage.postgres.project_items import PostgresItems

    with open_fleet(settings) as database, tempfile.TemporaryDirectory(prefix="agentos-") as scratch:
        items = PostgresItems(database, settings.fleet.project, Path(scratch) / "documents")
        try:
            yield items
        except BaseException:  # Ctrl-C at the third item: the first two are decided
            try:
                _announce(items.decided())
            except Exception as error:
                click.echo(str(error), err=True)
            raise
        _announce(items.decided())


def _announce(decided: list[str]) -> None:
    import asyncio

    from agentos.fleet.decisions import announce

    if decided:
        asyncio.run(announce(decided))


def _init() -> int:
    """Create the tables in Postgres, or migrate them, and check Temporal. Safe to repeat."""
    require_fleet()
    import asyncio
    import contextlib

    from agentos.config.settings import fleet_access
    from agentos.fleet.temporal import connect_temporal
    from agentos.storage.postgres.connecting import connect, place_of
    from agentos.storage.postgres.schema import create_tables

    access = fleet_access()
    with contextlib.closing(connect(access.postgres)) as connection:
        has_changed = create_tables(connection)
    click.echo(
        f"{place_of(access.postgres)}: tables {'created or migrated' if has_changed else 'are up to date'}"
    )
    client = asyncio.run(connect_temporal())
    click.echo(
        f"Temporal at {client.service_client.config.target_host}, namespace {client.namespace}: reachable"
    )
    click.echo(
        "Next, where the keys are: agentos gateway --listen HOST:PORT --tls-cert FILE --tls-key FILE, and agentos gateway token "
        "worker-1. On each machine: agentos worker --parallel 3. Then, in a project: lld-workflow --all --fleet"
    )
    return 0


command = click.Group(
    "fleet",
    help="Prepare a fleet: many machines, Temporal and Postgres.",
    commands=[
        click.Command(
            "init",
            callback=_init,
            help=_init.__doc__,
            epilog="\b\nExample:\n  AGENTOS_POSTGRES=postgresql://agentos@db/agentos agentos fleet init",
        )
    ],
)
