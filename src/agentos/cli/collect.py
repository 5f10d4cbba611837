"""`agentos collect`: writes what a fleet has finished into the project."""

from pathlib import Path

import click

from agentos.cli.fleet import open_fleet


def _run(repo: Path | None) -> int:
    """Write the documents that the fleet has finished into the project. Files with other content are never
    overwritten."""
    from agentos.config.settings import Flags, read_settings
    from agentos.outputs.format import count
    from agentos.storage.home import Home

    settings = read_settings(Flags(repo=repo))
    with open_fleet(settings) as database:
        from agentos.fleet.collect import Collector

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
            help="Project folder (default: the current folder or a parent).",
        )
    ],
    epilog="\b\nExample:\n  agentos collect",
)
