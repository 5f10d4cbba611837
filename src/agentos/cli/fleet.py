"""`agentos fleet`: prepares Postgres for a fleet and says what is missing; and what all fleet commands share."""

import importlib.util

import click

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
        is_new = create_tables(connection)
    click.echo(f"{place_of(access.postgres)}: tables {'created' if is_new else 'are up to date'}")
    client = asyncio.run(connect_temporal())
    click.echo(
        f"Temporal at {client.service_client.config.target_host}, namespace {client.namespace}: reachable"
    )
    click.echo(
        "Next, on each machine: agentos worker --parallel 3. Then, in a project: lld-workflow --all --fleet"
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
