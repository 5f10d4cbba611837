"""`agentos init`: a project folder to begin with."""

import shlex
from pathlib import Path

import click

SETTINGS = "agentos.toml"
EXAMPLES = {"issues": "issues/001-example.md", "ideas/active": "ideas/active/1-example.md"}


def _run(directory: Path) -> int:
    from agentos.core.errors import PreflightError

    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in (SETTINGS, *EXAMPLES.values()):
            _make(directory, name)
    except OSError as error:
        raise PreflightError(
            f"cannot make a project in {directory}: {error.filename or directory}: {error.strerror}; "
            "name a folder that can be written"
        ) from error
    go = "" if directory == Path() else f"cd {shlex.quote(str(directory))} && "
    click.echo("Look whether all is ready:  " + go + "agentos doctor --offline")
    click.echo("Then try it, without a key: " + go + "lld-workflow --all --offline")
    return 0


def _make(project: Path, name: str) -> None:
    """What is there stays: a file, and a folder that somebody uses gets no example."""
    from importlib import resources

    from agentos.storage.files import Folder

    folder = next((folder for folder, example in EXAMPLES.items() if example == name), "")
    places = (folder, "ideas/done") if folder.startswith("ideas") else (folder,)
    own = [path for place in places for path in (project / place).glob("*.md")] if folder else []
    if Folder(project).exists(name):
        click.echo(f"  kept  {name}")
    elif own:
        click.echo(f"  kept  {folder}/ ({len(own)} of your own, so no example)")
    else:
        content = resources.files("agentos.project_template").joinpath(name).read_bytes()
        Folder(project).write(name, content)
        click.echo(f"  made  {name}")


command = click.Command(
    "init",
    help="Make a project in DIR (this folder): an example issue, an example brief, a commented agentos.toml. "
    "Overwrites nothing.",
    params=[
        click.Argument(
            ["directory"],
            type=click.Path(path_type=Path, file_okay=False),
            default=Path(),
            metavar="[DIR]",
        )
    ],
    callback=_run,
    epilog="\b\nExamples:\n  agentos init\n  agentos init ../shop",
)
