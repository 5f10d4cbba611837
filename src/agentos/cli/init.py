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
    if directory != Path():
        click.echo(f"Go there:                   cd {shlex.quote(str(directory))}")
    click.echo("Look whether all is ready:  agentos doctor --offline")
    click.echo("Then try it, without a key: lld-workflow --all --offline")
    return 0


def _make(project: Path, name: str) -> None:
    """What is there stays: a file, and a folder that somebody uses gets no example."""
    from importlib import resources

    from agentos.storage.files import Folder

    folder = next((folder for folder, example in EXAMPLES.items() if example == name), "")
    if Folder(project).exists(name):
        click.echo(f"  kept  {name}")
    elif folder and (own := _own(project, folder)):
        click.echo(f"  kept  {folder}/ ({own}, so no example)")
    else:
        content = resources.files("agentos.project_template").joinpath(name).read_bytes()
        Folder(project).write(name, content)
        click.echo(f"  made  {name}")


def _own(project: Path, folder: str) -> str:
    """What somebody has put there, or had done from there; empty if nobody uses it."""
    here, done = (len(list((project / place).glob("*.md"))) for place in (folder, "ideas/done"))
    if here:
        return f"{here} of your own"
    return f"{done} of your own in ideas/done/" if done and folder.startswith("ideas") else ""


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
