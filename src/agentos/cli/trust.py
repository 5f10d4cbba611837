"""`agentos trust`: lets a project's agentos.toml use settings that need the user's consent."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click


def _run(project: Path | None, yes: bool, revoke: bool, list_all: bool) -> int:
    from agentos.config.file import read_file
    from agentos.config.project import PROJECT_FILE, find_project, path_from_here, working_folder
    from agentos.config.settings import environment, usable_home
    from agentos.config.trust import (
        NEEDS_TRUST,
        is_trusted,
        revoke_trust,
        trust_project,
        trusted_projects,
    )
    from agentos.core.errors import PreflightError
    from agentos.core.text.line_assembler import one_line

    home = usable_home()
    folder = project.absolute() if project else find_project(working_folder(), environment())
    path = folder / PROJECT_FILE
    if list_all:
        for name in sorted(trusted_projects(home)):
            click.echo(one_line(name))
        return 0
    if revoke:
        revoked = revoke_trust(home, folder)
        click.echo(f"{folder} is no longer trusted." if revoked else f"{folder} was not trusted.")
        return 0
    settings = read_file(path, folder)
    asked = [name for name in settings if name in NEEDS_TRUST]
    if not asked:
        click.echo(f"Nothing to trust: {path_from_here(path)} sets nothing that needs it.")
        return 0
    if is_trusted(home, folder, path):
        click.echo(f"{folder} is trusted already. To take it back: agentos trust --revoke")
        return 0
    click.echo(f"{path_from_here(path)} sets what is yours to decide:")
    for name in asked:
        click.echo(f"  {name} = {one_line(_shown(settings[name]))}  ({NEEDS_TRUST[name]})")
    if not yes:
        if not sys.stdin.isatty():
            raise PreflightError(
                "no terminal to ask for confirmation: if you have read the settings, type agentos trust --yes"
            )
        if not click.confirm("Trust this project with these settings?"):
            click.echo("Not trusted; nothing changed.")
            return 1
    trust_project(home, folder, path)
    click.echo(f"{folder} is trusted until its agentos.toml changes.")
    return 0


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(
            str(getattr(part, "name", part[0] if isinstance(part, tuple) else part)) for part in value
        )
    return str(value)


command = click.Command(
    "trust",
    help="Trust a project: its agentos.toml may then name a GitHub repository, prices and how many runs are kept. "
    "Until then those settings are held back. Trust ends when the file changes.",
    params=[
        click.Argument(
            ["project"], required=False, type=click.Path(path_type=Path, file_okay=False, exists=True)
        ),
        click.Option(["--yes", "-y"], is_flag=True, help="Do not ask."),
        click.Option(["--revoke"], is_flag=True, help="Stop trusting the project."),
        click.Option(["--list", "list_all"], is_flag=True, help="List the trusted projects."),
    ],
    callback=_run,
    epilog="\b\nExamples:\n  agentos trust\n  agentos trust ../shop --yes\n  agentos trust --list",
)


if TYPE_CHECKING:
    from agentos.config.settings import Settings


def warn_held_back(settings: "Settings", err: bool = False) -> None:
    """Print one line if settings are held back."""
    if not settings.held_back:
        return
    names = ", ".join(settings.held_back)
    click.echo(
        f"Not used from agentos.toml, since this project is not trusted: {names}. To allow: agentos trust",
        err=err,
    )
