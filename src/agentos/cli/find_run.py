"""Finds the run that a command refers to, and describes its state."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentos.core.errors import NothingMatches, PreflightError, UsageError

if TYPE_CHECKING:
    from agentos.core.run_state.run_stats import RunStats


def run_option() -> click.Option:
    return click.Option(
        ["--run", "run_id"],
        metavar="RUN",
        shell_complete=complete_runs,
        help="Run to address, if not the one in progress.",
    )


def complete_runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Run ids for shell completion."""
    from agentos.storage.runs import LATEST, run_folders

    try:
        names = [LATEST, *(folder.name for folder in run_folders(runs_folder()))]
    except PreflightError:
        # The command itself reports what is wrong; a shell cannot show it.
        return []
    return [name for name in names if name.startswith(incomplete)]


def runs_folder() -> Path:
    from agentos.config.settings import usable_home
    from agentos.storage.home import Home

    return Home(usable_home()).runs


def find_run(name: str | None) -> Path:
    """The run with this id, unique prefix of an id, or path of a folder with a journal.

    Without a name: the newest run in progress, else the newest; of the current folder's project, if it has one.
    """
    from agentos.storage.journal import NAME
    from agentos.storage.runs import LATEST, is_alive, run_folders

    if name and "/" in name and (Path(name) / NAME).is_file():
        return Path(name)
    folders = run_folders(runs_folder())
    if not folders:
        raise NothingMatches(f"no runs in {runs_folder()} yet; start one with: lld-workflow --all")
    if name is None:
        live = [folder for folder in folders if is_alive(folder)]
        return _preferred_here(live or folders)
    if name == LATEST:
        return folders[0]
    same = [folder for folder in folders if folder.name == name]
    found = same or [folder for folder in folders if name and folder.name.startswith(name)]
    if not found:
        raise NothingMatches(f"no run with id {name!r}; list them with: agentos runs")
    if len(found) > 1:
        raise NothingMatches(
            f"{len(found)} run ids start with {name}, such as {found[0].name} and {found[1].name}; "
            "give more of the id"
        )
    return found[0]


def _preferred_here(folders: list[Path]) -> Path:
    """The newest of these runs that worked on the current folder's project, else the newest."""
    return next(runs_here(folders), folders[0])


def runs_here(folders: list[Path]) -> Iterator[Path]:
    """Those of these runs that worked on the current folder's project, in the same order."""
    from agentos.config.project import find_project, working_folder
    from agentos.config.settings import environment
    from agentos.regular_files import UnsafeFile
    from agentos.storage.journal import read_first_record

    try:
        project = str(find_project(working_folder(), environment()))
        for folder in folders:
            if read_first_record(folder).get("project") == project:
                yield folder
    except (OSError, UnsafeFile, PreflightError):
        pass  # the command itself reports what is wrong with the run


def find_live_run(name: str | None, subcommand: str) -> Path:
    """The chosen run, which must be in progress; of several, the only one on the current folder's project.

    `subcommand` is what the user typed after `agentos`, for the suggestions when the choice is ambiguous.
    """
    from agentos.storage.runs import is_alive

    run = find_run(name)
    if name is None and len(live := _live_runs()) > 1:
        if (only := _addressed(live)) is None:
            choices = (
                f"\n  agentos {subcommand} --run {run.name}   ({run_command(run)}; {run_project(run)})"
                for run in live
            )
            raise UsageError(f"{len(live)} runs are in progress; choose one:{''.join(choices)}")
        run = only
    if not is_alive(run):
        raise UsageError(f"run {run.name} is not in progress: {describe_end(run)}")
    return run


def resume_hint(run: Path) -> str:
    """The command that resumes this run, which names it if several are in progress."""
    return "agentos resume" if _addressed(_live_runs()) == run else f"agentos resume {run.name}"


def _live_runs() -> list[Path]:
    from agentos.storage.runs import is_alive, run_folders

    return [folder for folder in run_folders(runs_folder()) if is_alive(folder)]


def _addressed(live: list[Path]) -> Path | None:
    """The one of these runs that a command without a name is about; None if that is ambiguous."""
    from agentos.config.project import find_project, working_folder
    from agentos.config.settings import environment

    if len(live) < 2:
        return live[0] if live else None
    project = str(find_project(working_folder(), environment()))
    here = [run for run in live if run_project(run) == project]
    return here[0] if len(here) == 1 else None


def describe_end(run: Path) -> str:
    """How a run that is no longer in progress ended, and what to type next."""
    from agentos.cli.waiting import waiting_text
    from agentos.config.settings import current_folder
    from agentos.outputs.resume_command import retry_command
    from agentos.outputs.summary import continue_command
    from agentos.storage.runs import load_run_stats

    stats, here = load_run_stats(run), current_folder()
    if stats.started is None:
        return "it never started. List other runs with: agentos runs"
    if stats.ended is None:
        return f"it was killed. Resume with: {continue_command(stats, here)}"
    code = stats.ended.exit_code
    if waiting := waiting_text(stats, here):
        return waiting
    if not code:
        return f"{completion_text(stats)}. See it with: agentos status"
    command = retry_command(stats.started, here) if code == 1 else continue_command(stats, here)
    return f"it ended with exit code {code}. Resume with: {command}"


def completion_text(stats: "RunStats") -> str:
    """The common state of all items of a run that has nothing left to do."""
    return "every item reached a verdict" if stats.reviewed else "every item is done"


def liveness_text(run: Path) -> str:
    """Whether a live run continues, or is suspended and how to wake it."""
    from agentos.storage.runs import stopped_process

    pid = stopped_process(run)
    return "continues." if pid is None else f"is suspended (Ctrl-Z): {wake_hint(pid)}."


def wake_hint(pid: int) -> str:
    return f"type fg in its terminal, or kill -CONT {pid}"


def run_command(run: Path) -> str:
    """The command that started the run, shortened."""
    from agentos.core.text.line_assembler import one_line
    from agentos.core.text.values import shortened
    from agentos.storage.journal import read_first_record

    return shortened(one_line(str(read_first_record(run).get("command") or "?")))


def run_project(run: Path) -> str:
    from agentos.storage.runs import load_run_stats

    started = load_run_stats(run).started
    return started.project if started else "?"
