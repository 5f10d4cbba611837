"""`agentos resume`: continues a paused run, or restarts a run that has ended with its own command."""

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentos.cli.find_run import complete_runs
from agentos.core.errors import NothingMatches, PreflightError, UsageError

if TYPE_CHECKING:
    from agentos.core.protocol.events import RunStarted


def _run(run_id: str | None, run_option: str | None) -> int:
    from agentos.cli.control import send_request
    from agentos.cli.find_run import find_run, runs_folder
    from agentos.core.protocol.events import ResumeRequested
    from agentos.storage.runs import is_alive, run_folders

    name = run_id or run_option
    folders = run_folders(runs_folder())
    if name is None and folders and not any(map(is_alive, folders)):
        return _start_again(_last_run_here())
    if name is not None and not is_alive(run := find_run(name)):
        return _start_again(run)
    return send_request(name, ResumeRequested(), "resume")


def _last_run_here() -> Path:
    """The newest run of the current folder's project; a run of another project is restarted only if it is named."""
    from agentos.cli.find_run import run_project, runs_folder
    from agentos.config.project import find_project, working_folder
    from agentos.config.settings import environment
    from agentos.storage.runs import run_folders

    here = working_folder()
    projects = {str(here), str(find_project(here, environment()))}
    found = next((run for run in run_folders(runs_folder()) if run_project(run) in projects), None)
    if found is None:
        raise NothingMatches(
            "no run is in progress, and this project has none: name one with agentos resume RUN "
            "(list them: agentos runs)"
        )
    return found


def _start_again(run: Path) -> int:
    from agentos.config.settings import current_folder, set_home
    from agentos.outputs.summary import continue_commands, not_redone
    from agentos.storage.runs import load_run_stats

    stats = load_run_stats(run)
    started = stats.started
    if started is None:
        raise UsageError(f"run {run.name} never started. List other runs with: agentos runs")
    commands = continue_commands(stats, None)
    home, words = _split(commands[0])
    if not words or os.path.basename(words[0]) not in _PROGRAMS:
        raise UsageError(f"run {run.name} was not started by a command of agentos: {started.command}")
    for line in not_redone(stats):
        click.echo(line, err=True)
    again = "; ".join(continue_commands(stats, current_folder()))
    click.echo(f"Starting run {run.name} again: {again}", err=True)
    _enter(started)
    if home or started.home:
        set_home(Path(home or started.home).absolute())
    codes = [0]
    for command in commands:
        if codes[-1] in (0, 1):  # else it was stopped
            codes.append(_execute(_split(command)[1]))
    return max(codes)


def _execute(words: list[str]) -> int:
    program = os.path.basename(words[0])
    # The run finds its own command there, to record it.
    sys.argv = [program, *words[1:]]
    code = _command(program).main(words[1:], prog_name=program, standalone_mode=False)
    return code if isinstance(code, int) else 0


_PROGRAMS = ("agentos", "lld-workflow", "issue-workflow")


def _split(command: str) -> tuple[str, list[str]]:
    """The home that the command sets, if any, and the words of the command."""
    from agentos.outputs.resume_command import HOME_ASSIGNMENT

    words = shlex.split(command)
    if words and words[0].startswith(HOME_ASSIGNMENT):
        return words[0].removeprefix(HOME_ASSIGNMENT), words[1:]
    return "", words


def _enter(started: "RunStarted") -> None:
    """Change to the folder in which the command was typed: its items and paths are relative to it."""
    from agentos.config.settings import enter_folder

    try:
        enter_folder(started.cwd or started.project)
    except OSError as error:
        raise PreflightError(
            f"cannot enter {started.cwd}, where the run was started: {error.strerror}"
        ) from error


def _command(program: str) -> click.Command:
    if program == "agentos":
        from agentos.cli.group import LazyGroup

        return LazyGroup()
    from agentos.cli.run import workflow_command

    return workflow_command(program.removesuffix("-workflow"))


command = click.Command(
    "resume",
    help="Continue a paused run. A run that has ended or was killed is started again with its own command, in the "
    "folder where that was typed: finished items are not repeated. Without RUN: the run in progress, else the last run "
    "of this project.",
    params=[
        click.Argument(["run_id"], required=False, metavar="[RUN]", shell_complete=complete_runs),
        click.Option(["--run", "run_option"], metavar="RUN", help="Same as the argument."),
    ],
    callback=_run,
    epilog="\b\nExamples:\n  agentos resume\n  agentos resume 20261115T221503Z",
)
