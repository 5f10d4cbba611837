"""`agentos collect`: writes what a fleet has finished into the project."""

from pathlib import Path

import click

from agentos.cli.fleet import require_fleet


def _run(repo: Path | None) -> int:
    """Write the documents that the fleet has finished into the project: whole, once, and never over other content."""
    require_fleet()
    import contextlib

    from agentos.config.settings import Flags, fleet_access, read_settings
    from agentos.fleet.collect import Collector
    from agentos.fleet.submit import fleet_project
    from agentos.outputs.format import count
    from agentos.storage.home import Home
    from agentos.storage.postgres.fleet_items import FleetDatabase
    from agentos.storage.postgres.schema import check_tables

    settings = read_settings(Flags(repo=repo))
    database = FleetDatabase(fleet_access().postgres, fleet_project(settings))
    with contextlib.closing(database):
        check_tables(database.connection)
        collector = Collector(database, settings.project, Home(settings.home).open())
        number = collector.collect_all(click.echo)
    for conflict in collector.conflicts:
        click.echo(
            f"{conflict.item}: {conflict.path} has other content, which is not overwritten. Move it away, then: agentos collect",
            err=True,
        )
    click.echo(f"{count(number, 'item')} collected." if number else "Nothing new.")
    return int(bool(collector.conflicts))


command = click.Command(
    "collect",
    callback=_run,
    help=_run.__doc__,
    params=[
        click.Option(
            ["--repo"],
            type=click.Path(path_type=Path, file_okay=False),
            help="Project folder (found upward from the current folder).",
        )
    ],
    epilog="\b\nExample:\n  agentos collect",
)
