"""`agentos doctor`: is this machine, and this project, ready?"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from agentos.diagnostics.doctor import Finding


def _run(repo: Path | None, offline: bool) -> int:
    from agentos.core.text.line_assembler import one_line
    from agentos.diagnostics.doctor import run_checks

    project = repo or Path.cwd()
    github = list(_github(project, offline))
    # Issues that are on GitHub need no folder here.
    findings = [
        one for one in run_checks(project, offline) if not (github and one.what == "project" and one.fix)
    ]
    findings += github
    cures = [finding for finding in findings if finding.fix]
    for finding in findings:
        number = f"  -> cure {cures.index(finding) + 1}" if finding.fix else ""
        mark = "FAIL" if finding.fix else "ok"
        click.echo(f"{mark:<5}{finding.what:<12} {one_line(finding.found)}{number}")
    for place, finding in enumerate(cures, 1):
        click.echo(f"{place}. {finding.what}: {one_line(finding.fix)}")
    again = "agentos doctor --offline" if offline else "agentos doctor"
    go = "lld-workflow --all --parallel --offline" if offline else "lld-workflow --all --parallel"
    click.echo(f"Mend these, then: {again}" if cures else f"Everything is ready: {go}")
    return 3 if cures else 0


def _github(project: Path, offline: bool) -> Iterator["Finding"]:
    """Settings that cannot be read are a finding of the checkup already."""
    from agentos.config.settings import Flags, read_settings
    from agentos.core.errors import AgentosError
    from agentos.diagnostics.doctor import Finding
    from agentos.run.github_setup import check_filing

    with contextlib.suppress(AgentosError):
        settings = read_settings(Flags(repo=project))
        if settings.github and not offline:
            filing = check_filing(settings)
            more = f"; {filing.unverified}" if filing.unverified else ""
            yield Finding("github", f"issues of {settings.github}{more}", filing.problem)


command = click.Command(
    "doctor",
    help="Check this machine and this project: python, home, permissions, disk, locks, clock, settings, keys, models, "
    "layout. Each trouble comes with its cure; nothing is changed.",
    params=[
        click.Option(
            ["--repo"],
            type=click.Path(path_type=Path, file_okay=False),
            help="The project's folder (this one).",
        ),
        click.Option(["--offline"], is_flag=True, help="For work without a key."),
    ],
    callback=_run,
    epilog="\b\nExamples:\n  agentos doctor\n  agentos doctor --repo ../shop --offline",
)
