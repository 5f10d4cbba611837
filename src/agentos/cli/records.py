"""Finding the run that somebody asks about."""

from pathlib import Path

from agentos.core.errors import NothingMatches
from agentos.settings import home_folder
from agentos.storage.layout import Home
from agentos.storage.runs import LATEST, run_folders


def runs_folder() -> Path:
    return Home(home_folder()).runs


def find_run(name: str | None) -> Path:
    """The newest run, or the one of this id."""
    folders = run_folders(runs_folder())
    if not folders:
        raise NothingMatches(f"there is no run in {runs_folder()} yet; start one with: lld-workflow --all")
    if name is None or name == LATEST:
        return folders[0]
    found = [folder for folder in folders if folder.name == name]
    if not found:
        raise NothingMatches(f"no run is called {name!r}; see them with: agentos runs")
    return found[0]
