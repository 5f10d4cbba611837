"""`agentos demo`: creates an example project and runs it offline."""

import contextlib
import errno
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import click

from agentos.cli.param_types import Workers
from agentos.core.errors import PreflightError, UsageError
from agentos.regular_files import UnsafeFile, read_regular
from agentos.storage.home import Home
from agentos.storage.locks import ItemLocks, LockFile, is_locked
from agentos.storage.runs import is_alive, run_folders

RATE_LIMIT_FAULT = '{"kind": "429-minute", "nth": 9, "retry_delay": 5}'
OFFLINE_SERVER_ARGUMENTS = (
    "--latency",
    "0.4,1.6",
    "--review-latency",
    "0.3,0.9",
    "--fault",
    RATE_LIMIT_FAULT,
)
MARKER = ".agentos-demo"
HOME = ".agentos-home"
WRITTEN_BY_RUNS = (HOME, "docs", ".locks", "__pycache__")


def _run(directory: Path, parallel: int) -> int:
    try:
        with demo_folder(directory) as project:
            return _run_demo(directory, project, parallel)
    except DemoInUse as error:
        raise DemoInUse(
            f"a run is in progress in {error}, so nothing was changed there. "
            f"Watch it with: {_program(directory, 'agentos')} watch; or choose another folder: agentos demo DIR"
        ) from error


def _run_demo(directory: Path, project: Path, parallel: int) -> int:
    from agentos.cli.worker_limit import limit_workers
    from agentos.config.settings import Flags, read_settings
    from agentos.core.planning.plan import Selection
    from agentos.run.api import RunRequest, run_workflow

    settings = read_settings(Flags(repo=project, parallel=parallel), {"AGENTOS_HOME": str(project / HOME)})
    settings = limit_workers(settings)
    parallel = settings.parallel
    click.echo(
        f"Example project in {directory}: turning ten issues into designs, {parallel or 'as many as keys allow'} at a time."
    )
    click.echo(
        "Using the built-in model server: no API key, no network, no cost. It simulates one rate limit.\n"
    )
    request = RunRequest(
        "lld",
        Selection(everything=True),
        settings,
        _resume_command(directory, parallel),
        offline=True,
        offline_arguments=OFFLINE_SERVER_ARGUMENTS,
    )
    if code := run_workflow(request, click.echo):
        return code
    click.echo("\nLook around, or turn the briefs into issues:")
    if folder := _programs_folder():
        click.echo(f"  export PATH={folder}:$PATH")
    click.echo(f"  cd {_quoted(directory)} && export AGENTOS_HOME=$PWD/.agentos-home")
    click.echo("  agentos status")
    click.echo("  issue-workflow --all --parallel --offline")
    return 0


def _resume_command(directory: Path, parallel: int) -> str:
    program = _program(directory, "lld-workflow")
    return f"{program} --all -j {parallel or 'auto'} --offline --repo {_quoted(directory)}"


def _program(directory: Path, name: str) -> str:
    """The command that starts one of our programs with the demo's home."""
    folder = _programs_folder()
    return f"AGENTOS_HOME={_quoted(directory / '.agentos-home')} {f'{folder}/{name}' if folder else name}"


def _programs_folder() -> str:
    """The folder of our programs, quoted for a shell; empty if they are on the PATH."""
    ours = Path(sys.executable).parent
    found = shutil.which("agentos")
    if found and Path(found).parent == ours:
        return ""
    here = Path.cwd()
    return f"$PWD/{_quoted(ours.relative_to(here))}" if ours.is_relative_to(here) else _quoted(ours)


def _quoted(directory: Path) -> str:
    return shlex.quote(str(directory))


command = click.Command(
    "demo",
    help="Create an example project in DIR (./agentos-demo) and run it: ten issues, three at a time, offline.",
    params=[
        click.Argument(
            ["directory"],
            type=click.Path(path_type=Path, file_okay=False),
            default=Path("agentos-demo"),
            metavar="[DIR]",
        ),
        click.Option(
            ["--parallel", "-j"],
            type=Workers(),
            is_flag=False,
            flag_value="3",
            default="3",
            help="Number of parallel workers (3).",
        ),
    ],
    callback=_run,
    epilog="\b\nExample:\n  agentos demo /tmp/try --parallel 5",
)


class DemoInUse(UsageError):
    """A run or another demo uses the folder."""


@contextlib.contextmanager
def demo_folder(directory: Path) -> Iterator[Path]:
    """Prepare the folder and keep other demos out of it until this one ends."""
    try:
        lock = _prepare(directory.absolute())
    except OSError as error:
        raise PreflightError(
            f"cannot create a demo in {directory}: {error.filename or directory}: {error.strerror}; "
            "choose a writable folder: agentos demo DIR"
        ) from error
    try:
        yield directory.absolute()
    finally:
        lock.release()


def _prepare(project: Path) -> LockFile:
    """Recreate a finished demo, keep an unfinished one so that it resumes, and refuse any other non-empty folder.

    A finished demo in which the user has changed anything is moved aside.
    """
    lock = LockFile(project / MARKER)
    project.mkdir(parents=True, exist_ok=True)
    if any(project.iterdir()) and not lock.path.exists():
        raise UsageError(f"{project} is not empty and not a demo; choose another folder: agentos demo DIR")
    if not lock.acquire():
        if is_locked(lock.path):
            raise DemoInUse(str(project))
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(lock.path))
    try:
        if _in_use(project):
            raise DemoInUse(str(project))
        if not any((project / HOME).glob("checkpoints/*/*.db")):
            if changed := _changed_files(project):
                aside = _move_aside(project)
                others = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
                click.echo(f"Moved the earlier demo to {aside}, since you changed it ({changed[0]}{others}).")
            _clear(project)
        _copy_backlog(project)
    except BaseException:
        lock.release()
        raise
    return lock


def _in_use(project: Path) -> bool:
    """Whether a live run uses the demo's home, or works on its items from another home."""
    runs = run_folders(Home(project / HOME).runs)
    return any(is_alive(run) for run in runs) or bool(ItemLocks(project).held())


def _clear(project: Path) -> None:
    """Remove everything but the locked marker, so that no other demo can start until it is done."""
    for entry in project.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != MARKER:
            entry.unlink()


def _changed_files(project: Path) -> list[str]:
    """Files that neither the demo nor its run wrote, or that have changed since."""
    found = []
    with resources.as_file(resources.files("agentos.demo_backlog")) as backlog:
        for folder, names, files in os.walk(project):
            inside = Path(folder).relative_to(project)
            names[:] = [name for name in names if str(inside / name) not in WRITTEN_BY_RUNS]
            for name in files:
                copied_from = (backlog / inside / name, backlog / "codebase" / inside / name)
                if str(inside / name) != MARKER and not any(
                    original.is_file() and _same_content(original, Path(folder) / name)
                    for original in copied_from
                ):
                    found.append(str(inside / name))
    return sorted(found)


def _same_content(original: Path, ours: Path) -> bool:
    try:
        return read_regular(ours) == read_regular(original)
    except (OSError, UnsafeFile):
        return False


def _move_aside(project: Path) -> Path:
    """Move everything but the locked marker to a new folder beside the demo."""
    number = 1
    while (aside := project.with_name(f"{project.name}-{number}")).exists():
        number += 1
    aside.mkdir()
    for entry in project.iterdir():
        if entry.name != MARKER:
            entry.rename(aside / entry.name)
    return aside


def _copy_backlog(project: Path) -> None:
    with resources.as_file(resources.files("agentos.demo_backlog")) as backlog:
        for folder in ("issues", "ideas"):
            shutil.copytree(backlog / folder, project / folder, dirs_exist_ok=True)
        compiled = shutil.ignore_patterns("__pycache__")
        shutil.copytree(backlog / "codebase", project, ignore=compiled, dirs_exist_ok=True)
