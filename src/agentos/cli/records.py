"""Finding the run that somebody asks about."""

from pathlib import Path
from typing import TYPE_CHECKING

from agentos.core.errors import NothingMatches

if TYPE_CHECKING:
    import click


def runs_folder() -> Path:
    from agentos.settings import home_folder
    from agentos.storage.layout import Home

    return Home(home_folder()).runs


def find_run(name: str | None) -> Path:
    """The newest run, the one of this id or of an id that begins so, or a folder with a journal in it."""
    from agentos.storage.journal import NAME
    from agentos.storage.runs import LATEST, run_folders

    if name and "/" in name and (Path(name) / NAME).is_file():
        return Path(name)
    folders = run_folders(runs_folder())
    if not folders:
        raise NothingMatches(f"there is no run in {runs_folder()} yet; start one with: lld-workflow --all")
    if name is None or name == LATEST:
        return folders[0]
    same = [folder for folder in folders if folder.name == name]
    found = same or [folder for folder in folders if name and folder.name.startswith(name)]
    if not found:
        raise NothingMatches(f"no run is called {name!r}; see them with: agentos runs")
    if len(found) > 1:
        raise NothingMatches(
            f"{len(found)} runs are called {name}..., such as {found[0].name} and {found[1].name}; say more of the id"
        )
    return found[0]


def complete_runs(ctx: "click.Context", param: "click.Parameter", incomplete: str) -> list[str]:
    """What the shell offers where a run is named."""
    from agentos.storage.runs import LATEST, run_folders

    names = [LATEST, *(folder.name for folder in run_folders(runs_folder()))]
    return [name for name in names if name.startswith(incomplete)]
