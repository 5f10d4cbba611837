"""The words that go on with a run, as they are typed where they are read."""

import shlex

from agentos.core.protocol.events import RunStarted

PROGRAM = " -- "
"""In a command: what stands behind it is not ours."""
HOME = "AGENTOS_HOME="
Here = str | None
"""The folder where the words are read; None is the one where the run was started."""


def resume_command(started: RunStarted, here: Here) -> str:
    """What goes on must not begin by dropping what was saved."""
    return _typed(started, without_fresh(started.command), here)


def retry_command(started: RunStarted, here: Here) -> str:
    """The same for the failed items alone."""
    ours, dashes, theirs = without_fresh(started.command).partition(PROGRAM)
    flag = "" if "--failed" in ours else " --failed"
    return _typed(started, f"{ours}{flag}{dashes}{theirs}", here)


def review_command(started: RunStarted, here: Here, *items: str) -> str:
    """The command that decides on what waits for a person."""
    place = _place(started, here).rstrip("/")
    return shlex.join(["agentos", "review", *items, *(("--repo", place) if place else ())])


def documents(started: RunStarted, here: Here, results: list[str]) -> str:
    """The folders of these results."""
    place = _place(started, here)
    return shlex.join(sorted({place + result.rpartition("/")[0] for result in results}))


def without_fresh(command: str) -> str:
    ours, dashes, theirs = command.partition(PROGRAM)
    return " ".join(word for word in ours.split(" ") if word != "--fresh") + dashes + theirs


def _typed(started: RunStarted, command: str, here: Here) -> str:
    if not _is_elsewhere(started, here):
        return command
    home = f"{HOME}{shlex.quote(started.home)} " if started.home and not command.startswith(HOME) else ""
    return f"(cd {shlex.quote(started.cwd)} && {home}{command})"


def _place(started: RunStarted, here: Here) -> str:
    """The way from here to the project; empty when we are there."""
    if not _is_elsewhere(started, here):
        return started.project_path
    return "" if started.project == here else f"{started.project}/"


def _is_elsewhere(started: RunStarted, here: Here) -> bool:
    """Never, where the records do not say where the run was started."""
    return here is not None and bool(started.cwd) and started.cwd != here
