"""`agentos prompts`: shows which prompts a project uses, and copies built-in ones for editing."""

from pathlib import Path

import click

_REPO = ["--repo"]


def _repo_option() -> click.Option:
    return click.Option(
        _REPO,
        type=click.Path(path_type=Path, file_okay=False),
        help="Project folder (default: the current folder or a parent).",
    )


def _project(repo: Path | None) -> Path:
    from agentos.config.project import find_project, working_folder
    from agentos.config.settings import environment

    return repo.absolute() if repo else find_project(working_folder(), environment())


def _list(repo: Path | None) -> int:
    from agentos.regular_files import list_folder
    from agentos.workflows.node_context import PROJECT_PROMPTS, PROMPT_VARIABLES, check_project_prompts

    project = _project(repo)
    check_project_prompts(project)
    own = list_folder(project / PROJECT_PROMPTS, project)
    for name, variables in PROMPT_VARIABLES.items():
        where = f"{PROJECT_PROMPTS}/{name}" if name in own else "built in"
        click.echo(f"{name.removesuffix('.md'):<13} {where:<32} {' '.join(f'${each}' for each in variables)}")
    return 0


def _eject(names: tuple[str, ...], repo: Path | None) -> int:
    from agentos.core.errors import UsageError
    from agentos.storage.files import ProjectFolder
    from agentos.workflows.node_context import PROJECT_PROMPTS, PROMPT_VARIABLES, load_prompt_file

    known = [name.removesuffix(".md") for name in PROMPT_VARIABLES]
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"no prompt named {unknown[0]!r}; choose from {', '.join(known)}")
    folder = ProjectFolder(_project(repo))
    for name in names or known:
        path = f"{PROJECT_PROMPTS}/{name}.md"
        if folder.exists(path):
            click.echo(f"{path} already exists and was kept")
            continue
        folder.write(path, load_prompt_file(f"{name}.md").encode())
        click.echo(f"Wrote {path}")
    click.echo("Runs in this project now use these files. To go back to a built-in prompt, delete its file.")
    return 0


command = click.Group(
    "prompts",
    help="Show the prompts that a project uses, or copy the built-in ones to edit them.",
    commands={
        "list": click.Command(
            "list",
            help="List the prompts, where each comes from and which variables it may use.",
            params=[_repo_option()],
            callback=_list,
            epilog="\b\nExample:\n  agentos prompts list",
        ),
        "eject": click.Command(
            "eject",
            help="Copy built-in prompts (all of them, or the named ones) to .agentos/prompts, where a run finds them. "
            "Never overwrites a file.",
            params=[click.Argument(["names"], nargs=-1, metavar="[NAME]..."), _repo_option()],
            callback=_eject,
            epilog="\b\nExample:\n  agentos prompts eject lld_review",
        ),
    },
)
