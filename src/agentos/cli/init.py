"""`agentos init`: creates a project folder with examples."""

import shlex
from pathlib import Path

import click

SETTINGS = "agentos.toml"
DOCUMENTS = {"issues": "issues/001-example.md", "ideas/active": "ideas/active/1-example.md"}
WORKFLOW = {"topics": "topics/snow.md"}
EXAMPLES = {**DOCUMENTS, **WORKFLOW}
GRAPH = "essays.py"


def _run(directory: Path, workflow: bool) -> int:
    from agentos.core.errors import PreflightError

    try:
        directory.mkdir(parents=True, exist_ok=True)
        files = (GRAPH, *WORKFLOW.values()) if workflow else tuple(DOCUMENTS.values())
        for name in (SETTINGS, *files):
            _create(directory, name)
    except OSError as error:
        raise PreflightError(
            f"cannot create a project in {directory}: {error.filename or directory}: {error.strerror}; "
            "choose a writable folder: agentos init DIR"
        ) from error
    if around := _project_around(directory):
        click.echo(f"It is inside the project {around}; commands typed in it are about the new one.")
    if directory != Path():
        click.echo(f"Go there:               cd {shlex.quote(str(directory))}")
    click.echo("Check the set-up:       agentos doctor --offline")
    command = "agentos run essays:workflow" if workflow else "lld-workflow"
    click.echo(f"Try it without a key:   {command} --all --offline")
    return 0


def _project_around(directory: Path) -> Path | None:
    """The project that contains this folder."""
    from agentos.config.project import find_project, is_project
    from agentos.config.settings import environment

    parent = directory.absolute().resolve().parent
    found = find_project(parent, environment())
    return found if is_project(found) else None


def _create(project: Path, name: str) -> None:
    """Copy a file from the template; keep existing files, and add no example to a folder in use."""
    from importlib import resources

    from agentos.storage.files import Folder

    folder = next((folder for folder, example in EXAMPLES.items() if example == name), "")
    if Folder(project).exists(name):
        click.echo(f"  kept     {name}")
    elif folder and (own := _own_files(project, folder)):
        click.echo(f"  kept     {folder}/ ({own}, so no example)")
    else:
        content = resources.files("agentos.project_template").joinpath(name).read_bytes()
        Folder(project).write(name, content)
        click.echo(f"  created  {name}")


def _own_files(project: Path, folder: str) -> str:
    """How many files of the user are in the folder, or were there and are done; empty if none."""
    here, done = (len(list((project / name).glob("*.md"))) for name in (folder, "ideas/done"))
    if here:
        return f"{here} of your own"
    return f"{done} of your own in ideas/done/" if done and folder.startswith("ideas") else ""


command = click.Command(
    "init",
    help="Create a project in DIR (current folder): an example issue, an example brief and a commented agentos.toml. "
    "With --workflow instead a LangGraph graph and a file to run it on. Overwrites nothing.",
    params=[
        click.Argument(
            ["directory"],
            type=click.Path(path_type=Path, file_okay=False),
            default=Path(),
            metavar="[DIR]",
        ),
        click.Option(
            ["--workflow"], is_flag=True, help="Create a starter for a workflow of your own, in essays.py."
        ),
    ],
    callback=_run,
    epilog="\b\nExamples:\n  agentos init\n  agentos init ../shop\n  agentos init --workflow",
)
