"""Finding the run that somebody asks about."""

from pathlib import Path
from typing import TYPE_CHECKING

from agentos.core.errors import NothingMatches, PreflightError, UsageError

if TYPE_CHECKING:
    import click

    from agentos.core.run_state.run_stats import RunStats


def runs_folder() -> Path:
    from agentos.config.settings import usable_home
    from agentos.storage.home import Home

    return Home(usable_home()).runs


def find_run(name: str | None) -> Path:
    """The newest run that lives, else the newest; the one of this id or of an id that begins so, or a folder with a journal in it."""
    from agentos.storage.journal import NAME
    from agentos.storage.runs import LATEST, is_alive, run_folders

    if name and "/" in name and (Path(name) / NAME).is_file():
        return Path(name)
    folders = run_folders(runs_folder())
    if not folders:
        raise NothingMatches(f"there is no run in {runs_folder()} yet; start one with: lld-workflow --all")
    if name is None:
        return next((folder for folder in folders if is_alive(folder)), folders[0])
    if name == LATEST:
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


def living_run(name: str | None, what: str) -> Path:
    """The run that is meant, which must live; of several, the one on the project we stand in."""
    from agentos.storage.runs import is_alive, run_folders

    run = find_run(name)
    if name is None:
        living = [folder for folder in run_folders(runs_folder()) if is_alive(folder)]
        here = [folder for folder in living if _project(folder) == str(Path.cwd())]
        if len(living) > 1 and len(here) != 1:
            raise UsageError(f"{len(living)} runs are under way, name one:{_choices(living, what)}")
        run = here[0] if len(living) > 1 else run
    if not is_alive(run):
        raise UsageError(f"run {run.name} is not under way: {ending_text(run)}")
    return run


def ending_text(run: Path) -> str:
    """In a few words, with what to type next."""
    from agentos.config.settings import current_folder
    from agentos.core.protocol.results import Ending
    from agentos.outputs.resume_command import resume_command, retry_command, review_command
    from agentos.storage.runs import load_run_stats

    stats, here = load_run_stats(run), current_folder()
    if stats.started is None:
        return "it never began. See the others with: agentos runs"
    if stats.ended is None:
        return f"it was killed. Go on with: {resume_command(stats.started, here)}"
    code = stats.ended.exit_code
    if parked := [row.item for row in stats.ending(Ending.PARKED)]:
        wait = "waits" if len(parked) == 1 else "wait"
        return f"{', '.join(parked)} {wait} for a person. Decide with: {review_command(stats.started, here)}"
    if not code:
        return f"{everything_over(stats)}. See it with: agentos status"
    again = retry_command if code == 1 else resume_command
    return f"it ended with exit code {code}. Go on with: {again(stats.started, here)}"


def everything_over(stats: "RunStats") -> str:
    """What is true of all items of a run that has nothing left to do."""
    return "everything reached a verdict" if stats.reviewed else "everything is done"


def liveness_text(run: Path) -> str:
    """Of a run that lives: whether it goes on, or what makes it."""
    from agentos.storage.runs import stopped_process

    pid = stopped_process(run)
    return "goes on." if pid is None else f"stands still (Ctrl-Z): {waking(pid)}."


def waking(pid: int) -> str:
    return f"type fg in its terminal, or kill -CONT {pid}"


def complete_runs(ctx: "click.Context", param: "click.Parameter", incomplete: str) -> list[str]:
    """What the shell offers where a run is named."""
    from agentos.storage.runs import LATEST, run_folders

    try:
        names = [LATEST, *(folder.name for folder in run_folders(runs_folder()))]
    except PreflightError:
        # The command itself says what is wrong; a shell has no place for it.
        return []
    return [name for name in names if name.startswith(incomplete)]


def _choices(living: list[Path], what: str) -> str:
    return "".join(f"\n  agentos {what} --run {folder.name}   ({_project(folder)})" for folder in living)


def _project(run: Path) -> str:
    from agentos.storage.runs import load_run_stats

    started = load_run_stats(run).started
    return started.project if started else "?"
