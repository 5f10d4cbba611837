"""`agentos doctor`: checks whether this machine and this project are ready for a run."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentos.cli.json_output import json_option, print_json

if TYPE_CHECKING:
    from agentos.diagnostics.doctor import Finding


def _run(repo: Path | None, offline: bool, as_json: bool) -> int:
    from agentos.config.project import (
        find_project,
        project_prefix,
        repo_option,
        with_paths_from_here,
        working_folder,
    )
    from agentos.config.settings import environment
    from agentos.core.text.line_assembler import one_line
    from agentos.diagnostics.doctor import run_checks
    from agentos.outputs.colour import painter
    from agentos.outputs.format import seen_from

    project = repo or find_project(working_folder(), environment())
    github = list(_check_github(project, offline))
    # A project whose issues are on GitHub needs no issues folder.
    findings = [
        finding
        for finding in run_checks(project, offline)
        if not (github and finding.what == "project" and finding.fix)
    ]
    fleet = list(_check_fleet(project))
    if fleet:
        findings = [_with_keys_of_the_fleet(finding) for finding in findings]
    findings += [*github, *fleet]
    paint, path = painter(), project_prefix(project)

    def shown(text: str) -> str:
        return seen_from(path, with_paths_from_here(one_line(text), environment()))

    failures = [finding for finding in findings if finding.fix]
    if as_json:
        checks = [
            {"check": each.what, "ok": not each.fix, "found": each.found, "fix": each.fix or None}
            for each in findings
        ]
        print_json({"ready": not failures, "project": str(project.absolute()), "checks": checks})
        return 3 if failures else 0
    # Print a fix that is shared by several findings only once.
    fixes = list(dict.fromkeys((finding.what, finding.fix) for finding in failures))
    for finding in findings:
        reference = f"  -> fix {fixes.index((finding.what, finding.fix)) + 1}" if finding.fix else ""
        result = "FAIL" if finding.fix else "WARN" if finding.is_warning else "ok"
        click.echo(f"{paint(f'{result:<5}')}{finding.what:<12} {shown(finding.found)}{reference}", color=True)
    for number, (what, fix) in enumerate(fixes, 1):
        click.echo(f"{number}. {what}: {shown(fix)}")
    flags = repo_option(project, environment()) + (" --offline" if offline else "")
    start = next((finding.start for finding in findings if finding.start), "lld-workflow")
    click.echo(
        f"Fix these, then run: agentos doctor{flags}"
        if failures
        else f"Everything is ready. Start with: {start} --all --parallel{flags}"
    )
    return 3 if failures else 0


def _check_github(project: Path, offline: bool) -> Iterator["Finding"]:
    """Access to the GitHub repository; unreadable settings are reported by run_checks."""
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


def _with_keys_of_the_fleet(finding: "Finding") -> "Finding":
    """A machine of a fleet needs no keys of its own."""
    from agentos.diagnostics.doctor import NO_KEYS, Finding

    if finding.fix != NO_KEYS:
        return finding
    return Finding(finding.what, f"{finding.found}; with --fleet the gateway's are used")


def _check_fleet(project: Path) -> Iterator["Finding"]:
    """The services of the fleet, where the settings name one."""
    from agentos.cli.fleet import require_fleet
    from agentos.config.settings import Flags, fleet_access, read_settings
    from agentos.core.errors import AgentosError, PreflightError
    from agentos.diagnostics.doctor import Finding

    with contextlib.suppress(AgentosError):
        settings, access = read_settings(Flags(repo=project)), fleet_access()
        if not (settings.fleet.project or access.postgres.reveal()):
            return
        try:
            require_fleet()
        except PreflightError as error:
            yield Finding("fleet", "the extra is missing", str(error))
            return
        from agentos.fleet.readiness import check_fleet

        for check in check_fleet(settings, access):
            yield Finding(check.what, check.found, check.fix)


command = click.Command(
    "doctor",
    help="Check this machine and this project: Python, home, permissions, disk, locks, clock, settings, keys, models, "
    "layout, and the services of a fleet. Each problem comes with a fix; nothing is changed.",
    params=[
        click.Option(
            ["--repo"],
            type=click.Path(path_type=Path, file_okay=False),
            help="Project folder (default: the current folder or a parent).",
        ),
        click.Option(["--offline"], is_flag=True, help="Check for offline runs, which need no key."),
        json_option(),
    ],
    callback=_run,
    epilog="\b\nExamples:\n  agentos doctor\n  agentos doctor --repo ../shop --offline",
)
