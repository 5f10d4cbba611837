"""`agentos fleet init`: creates the tables in Postgres and checks Temporal. Also the helpers of all fleet commands."""

import contextlib
import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from agentos.config.settings import Settings
    from agentos.storage.item_store import ProjectItems
    from agentos.storage.postgres.fleet_items import FleetDatabase

_REQUIRED = {"temporalio": "temporalio", "psycopg": "psycopg", "langgraph.checkpoint.postgres": "langgraph"}
"""Each module that a fleet needs, and its top-level package."""


def require_fleet() -> None:
    """Raises PreflightError if the extra `fleet` is not installed."""
    from agentos.core.errors import PreflightError

    for module, package in _REQUIRED.items():
        # find_spec raises an error for a submodule of a package that is missing.
        found = importlib.util.find_spec(package) and importlib.util.find_spec(module)
        if not found:
            raise PreflightError(
                f"a fleet needs {module}, which is not installed: type pip install 'agentos-runner[fleet]'"
            )


@contextlib.contextmanager
def open_fleet(settings: "Settings") -> "Iterator[FleetDatabase]":
    """The fleet's database, limited to this project. Raises PreflightError if it cannot be used."""
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
    """The fleet's items that wait for a person. On any exit, also by an exception, the workflows of the items decided by
    then are notified, so that they continue."""
    import tempfile
    from pathlib import Path

    from agentos.storage.postgres.project_items import PostgresItems

    with open_fleet(settings) as database, tempfile.TemporaryDirectory(prefix="agentos-") as scratch:
        items = PostgresItems(database, settings.fleet.project, Path(scratch) / "documents")
        try:
            yield items
        except BaseException:  # for example Ctrl-C at the third item, after two decisions
            try:
                _notify(items.decided())
            except Exception as error:
                click.echo(str(error), err=True)
            raise
        _notify(items.decided())


def _notify(decided: list[str]) -> None:
    import asyncio

    from agentos.fleet.decisions import notify_workflows

    if decided:
        asyncio.run(notify_workflows(decided))


def _init() -> int:
    """Create the tables in Postgres, or migrate them, and check Temporal. Safe to repeat."""
    require_fleet()
    import asyncio

    from agentos.config.settings import fleet_access
    from agentos.fleet.temporal import connect_temporal
    from agentos.storage.postgres.connecting import address_text, connect
    from agentos.storage.postgres.schema import create_tables

    access = fleet_access()
    with contextlib.closing(connect(access.postgres)) as connection:
        has_changed = create_tables(connection)
    click.echo(
        f"{address_text(access.postgres)}: tables {'created or migrated' if has_changed else 'are up to date'}"
    )
    client = asyncio.run(connect_temporal())
    click.echo(
        f"Temporal at {client.service_client.config.target_host}, namespace {client.namespace}: reachable"
    )
    click.echo(
        "Next, on the machine that has the keys: agentos gateway --listen HOST:PORT --tls-cert FILE --tls-key FILE, and "
        "agentos gateway token worker-1. On each worker machine: agentos worker --parallel 3. Then, in a project: lld-workflow --all --fleet"
    )
    return 0


command = click.Group(
    "fleet",
    help="Prepare a fleet: several machines that share work through Temporal and Postgres.",
    commands=[
        click.Command(
            "init",
            callback=_init,
            help=_init.__doc__,
            epilog="\b\nExample:\n  AGENTOS_POSTGRES=postgresql://agentos@db/agentos agentos fleet init",
        )
    ],
)
