"""`agentos demo`: an example project, made and run."""

import shutil
import sys
from pathlib import Path

import click

from agentos.cli.words import Workers, capped

FAULT = '{"kind": "429-minute", "nth": 9, "retry_delay": 5}'
LATENCY = ("--latency", "0.4,1.6", "--review-latency", "0.3,0.9", "--fault", FAULT)


def _run(directory: Path, parallel: int) -> int:
    from agentos.app import run_workflow
    from agentos.core.plan import Selection
    from agentos.request import Request
    from agentos.settings import Flags, read_settings

    parallel = capped(parallel)
    project = directory.absolute()
    _prepare(project)
    settings = read_settings(
        Flags(repo=project, parallel=parallel), {"AGENTOS_HOME": str(project / ".agentos-home")}
    )
    click.echo(f"An example project in {directory}: ten issues to become designs, {parallel} at a time.")
    click.echo(
        "The built-in rule machine answers: no key, no network, no cost.\nOne rate limit is on its way.\n"
    )
    request = Request(
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


def _prepare(project: Path) -> None:
    """A finished demo is made anew, an unfinished one goes on; a stranger's folder is left alone."""
    mark = project / ".agentos-demo"
    if project.exists() and any(project.iterdir()) and not mark.exists():
        raise click.UsageError(f"{project} is not empty, and not a demo: name another folder")
    if mark.exists() and not _unfinished(project):
        shutil.rmtree(project)
    from importlib import resources

    with resources.as_file(resources.files("agentos.demo_backlog")) as backlog:
        for folder in ("issues", "ideas"):
            shutil.copytree(backlog / folder, project / folder, dirs_exist_ok=True)
    mark.touch()


def _unfinished(project: Path) -> bool:
    return any((project / ".agentos-home").glob("checkpoints/*/*.db"))


def _again(directory: Path, parallel: int) -> str:
    home = _shown(directory / ".agentos-home")
    place = _off_the_path()
    program = f"{place}/lld-workflow" if place else "lld-workflow"
    return f"AGENTOS_HOME={home} {program} --all -j {parallel} --offline --repo {_shown(directory)}"


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
            ["directory"], type=click.Path(path_type=Path), default=Path("agentos-demo"), metavar="[DIR]"
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
