"""`agentos demo`: creates an example project and runs it offline."""

import shlex
import shutil
import sys
from pathlib import Path

import click

from agentos.cli.param_types import Workers, capped

RATE_LIMIT_FAULT = '{"kind": "429-minute", "nth": 9, "retry_delay": 5}'
OFFLINE_SERVER_ARGUMENTS = (
    "--latency",
    "0.4,1.6",
    "--review-latency",
    "0.3,0.9",
    "--fault",
    RATE_LIMIT_FAULT,
)


def _run(directory: Path, parallel: int) -> int:
    from agentos.cli.demo_folder import DemoInUse, demo_folder

    parallel = capped(parallel)
    try:
        with demo_folder(directory) as project:
            return _run_demo(directory, project, parallel)
    except DemoInUse as error:
        raise DemoInUse(
            f"a run is in progress in {error}, so nothing was changed there. "
            f"Watch it with: {_program(directory, 'agentos')} watch; or choose another folder: agentos demo DIR"
        ) from error


def _run_demo(directory: Path, project: Path, parallel: int) -> int:
    from agentos.cli.demo_folder import HOME
    from agentos.config.settings import Flags, read_settings
    from agentos.core.planning.plan import Selection
    from agentos.run.api import run_workflow
    from agentos.run.request import RunRequest

    settings = read_settings(Flags(repo=project, parallel=parallel), {"AGENTOS_HOME": str(project / HOME)})
    click.echo(f"Example project in {directory}: turning ten issues into designs, {parallel} at a time.")
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
    return f"{program} --all -j {parallel} --offline --repo {_quoted(directory)}"


def _program(directory: Path, name: str) -> str:
    """How to call one of our programs with the demo's home."""
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
