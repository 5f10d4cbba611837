"""The commands that resume, retry or review a run, as the user has to type them in their current folder."""

import os.path
import re
import shlex
from decimal import Decimal

from agentos.core.protocol.events import RunStarted

PROGRAM_SEPARATOR = " -- "
"""In an `agentos exec` command, everything after it belongs to the user's program."""
HOME_ASSIGNMENT = "AGENTOS_HOME="
_BUDGET = re.compile(r"(?<= )(--budget[ =])([0-9.]+)(?![^ )])")
Here = str | None
"""The folder in which the user reads the command; None: the one in which the run was started."""


def resume_command(started: RunStarted, here: Here) -> str:
    """The run's own command without `--fresh`, which would drop what was saved."""
    return _from_folder(started, without_fresh(started.command), here)


def redo_command(started: RunStarted, here: Here, numbers: str) -> str:
    """The run's own command, with its `--fresh`, for these items only."""
    words, selecting = shlex.split(started.command), started.selecting_words
    at = selecting[0] if selecting else 3 if words[0] == "agentos" else 1
    words = [word for index, word in enumerate(words) if index not in selecting]
    words[at:at] = numbers.split()
    return _from_folder(started, shlex.join(words), here)


def retry_command(started: RunStarted, here: Here) -> str:
    """The same for the failed items alone."""
    options, separator, program = without_fresh(started.command).partition(PROGRAM_SEPARATOR)
    flag = "" if "--failed" in options else " --failed"
    return _from_folder(started, f"{options}{flag}{separator}{program}", here)


def review_command(started: RunStarted, here: Here, *items: str) -> str:
    """The command that decides on items waiting for a person."""
    return project_command(started, here, "review", *(("--fleet",) if is_on_fleet(started) else ()), *items)


def is_on_fleet(started: RunStarted) -> bool:
    return "--fleet" in started.command.partition(PROGRAM_SEPARATOR)[0].split()


def project_command(started: RunStarted, here: Here, *words: str) -> str:
    """A command of agentos about the run's project."""
    path = path_to_project(started, here).rstrip("/")
    return shlex.join(["agentos", *words, *(("--repo", path) if path else ())])


def result_folders(started: RunStarted, here: Here, results: list[str]) -> str:
    """The folders of these results, quoted for a shell."""
    path = path_to_project(started, here)
    return shlex.join(sorted({path + result.rpartition("/")[0] for result in results}))


def without_fresh(command: str) -> str:
    options, separator, program = command.partition(PROGRAM_SEPARATOR)
    return " ".join(word for word in options.split(" ") if word != "--fresh") + separator + program


def with_double_budget(command: str) -> str:
    """The command with twice its `--budget`, if it has one."""
    options, separator, program = command.partition(PROGRAM_SEPARATOR)
    doubled = _BUDGET.sub(lambda found: f"{found[1]}{(Decimal(found[2]) * 2).normalize():f}", options)
    return doubled + separator + program


def _from_folder(started: RunStarted, command: str, here: Here) -> str:
    if not _is_other_folder(started, here):
        return command
    set_home = bool(started.home) and not command.startswith(HOME_ASSIGNMENT)
    home = f"{HOME_ASSIGNMENT}{shlex.quote(started.home)} " if set_home else ""
    return f"(cd {shlex.quote(_seen_from(started.cwd, here))} && {home}{command})"


def path_to_project(started: RunStarted, here: Here) -> str:
    """The path from `here` to the project, with a trailing slash; empty if `here` is the project."""
    if not _is_other_folder(started, here):
        return started.project_path
    return "" if started.project == here else f"{_seen_from(started.project, here)}/"


def _seen_from(folder: str, here: Here) -> str:
    """A folder above or below `here` as a relative path, any other as an absolute one."""
    is_near = here and os.path.commonpath((folder, here)) in (folder, here)
    return os.path.relpath(folder, here) if is_near else folder


def _is_other_folder(started: RunStarted, here: Here) -> bool:
    """Whether `here` differs from the run's folder; False if the journal does not name that."""
    return here is not None and bool(started.cwd) and started.cwd != here
