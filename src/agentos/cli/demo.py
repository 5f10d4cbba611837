"""`agentos demo`: an example project, made and run."""

import shutil
import sys
from pathlib import Path

import click

from agentos.cli.param_types import Workers, capped

FAULT = '{"kind": "429-minute", "nth": 9, "retry_delay": 5}'
LATENCY = ("--latency", "0.4,1.6", "--review-latency", "0.3,0.9", "--fault", FAULT)


def _run(directory: Path, parallel: int) -> int:
    from agentos.cli.demo_folder import UnderWay, demo_folder

    parallel = capped(parallel)
    try:
        with demo_folder(directory) as project:
            return _show(directory, project, parallel)
    except UnderWay as error:
        raise UnderWay(
            f"a run is under way in {error}, so nothing was changed there. "
            f"Watch it with: {_ours(directory, 'agentos')} watch; or name another folder: agentos demo DIR"
        ) from error


def _show(directory: Path, project: Path, parallel: int) -> int:
    from agentos.cli.demo_folder import HOME
    from agentos.config.settings import Flags, read_settings
    from agentos.core.planning.plan import Selection
    from agentos.run.api import run_workflow
    from agentos.run.request import RunRequest

    settings = read_settings(Flags(repo=project, parallel=parallel), {"AGENTOS_HOME": str(project / HOME)})
    click.echo(f"An example project in {directory}: ten issues to become designs, {parallel} at a time.")
    click.echo(
        "The built-in rule engine answers: no key, no network, no cost.\nOne rate limit is on its way.\n"
    )
    request = RunRequest(
        "lld",
        Selection(everything=True),
        settings,
        _again(directory, parallel),
        offline=True,
        offline_arguments=LATENCY,
    )
    if code := run_workflow(request, click.echo):
        return code
    click.echo("\nLook around, or turn the briefs into issues next:")
    if place := _off_the_path():
        click.echo(f"  export PATH={place}:$PATH")
    click.echo(f"  cd {_shown(directory)} && export AGENTOS_HOME=$PWD/.agentos-home")
    click.echo("  agentos status")
    click.echo("  issue-workflow --all --parallel --offline")
    return 0


def _again(directory: Path, parallel: int) -> str:
    program = _ours(directory, "lld-workflow")
    return f"{program} --all -j {parallel} --offline --repo {_shown(directory)}"


def _ours(directory: Path, program: str) -> str:
    """One of our commands as it is typed here for the demo's home."""
    place = _off_the_path()
    return f"AGENTOS_HOME={_shown(directory / '.agentos-home')} {f'{place}/{program}' if place else program}"


def _off_the_path() -> str:
    """The folder of our commands as a shell would write it, if typing their names does not find them."""
    ours = Path(sys.executable).parent
    found = shutil.which("agentos")
    if found and Path(found).parent == ours:
        return ""
    here = Path.cwd()
    return f"$PWD/{_shown(ours.relative_to(here))}" if ours.is_relative_to(here) else _shown(ours)


def _shown(directory: Path) -> str:
    import shlex

    return shlex.quote(str(directory))


command = click.Command(
    "demo",
    help="Make an example project in DIR (./agentos-demo) and run it: ten issues, three at a time, offline.",
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
            help="Workers side by side (3).",
        ),
    ],
    callback=_run,
    epilog="\b\nExample:\n  agentos demo /tmp/try --parallel 5",
)
