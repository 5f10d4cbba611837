"""`agentos doctor`: is this machine, and this project, ready?"""

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click

LEAST_DISK = 200 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; a cure means that it is not well."""

    what: str
    found: str
    cure: str = ""


def _run(repo: Path | None) -> int:
    findings = list(_findings(repo or Path.cwd()))
    cures = [finding for finding in findings if finding.cure]
    for finding in findings:
        number = f"  -> cure {cures.index(finding) + 1}" if finding.cure else ""
        click.echo(f"{'FAIL' if finding.cure else 'ok':<5}{finding.what:<12} {finding.found}{number}")
    for place, finding in enumerate(cures, 1):
        click.echo(f"{place}. {finding.what}: {finding.cure}")
    click.echo(
        "Everything is ready: lld-workflow --all --parallel"
        if not cures
        else "Mend these, then: agentos doctor"
    )
    return 3 if cures else 0


def _findings(project: Path) -> Iterator[Finding]:
    for check in _CHECKS:
        yield from check(project)


def _python(project: Path) -> Iterator[Finding]:
    yield Finding(
        "python",
        platform.python_version(),
        "" if sys.version_info >= (3, 11) else "install Python 3.11 or newer",
    )
    yield Finding("system", platform.system(), "" if sys.platform == "linux" else "agentos runs on Linux")


def _home(project: Path) -> Iterator[Finding]:
    from agentos.core.errors import PreflightError
    from agentos.settings import home_folder
    from agentos.storage.layout import Home

    path = home_folder()
    existed = path.exists()
    try:
        Home(path).open()
        yield Finding("home", f"{path} can be written")
    except PreflightError as error:
        yield Finding("home", str(path), str(error))
    else:
        if not existed:
            path.rmdir()


def _disk(project: Path) -> Iterator[Finding]:
    from agentos.settings import home_folder

    place = home_folder()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    cure = "" if free > LEAST_DISK else f"free some space on {place}"
    yield Finding("disk", f"{free // 1024**2:,} MB free", cure)


def _locks(project: Path) -> Iterator[Finding]:
    import tempfile

    from agentos.storage.locks import LockFile

    with tempfile.TemporaryDirectory() as folder:
        first, second = LockFile(Path(folder) / "x"), LockFile(Path(folder) / "x")
        works = first.acquire() and not second.acquire()
        first.release()
    yield Finding(
        "locks",
        "the kernel keeps them" if works else "flock does not hold",
        "" if works else "use a local disk",
    )


def _keys(project: Path) -> Iterator[Finding]:
    from agentos.core.errors import PreflightError
    from agentos.settings import environment, home_folder
    from agentos.storage.credentials import CredentialSource
    from agentos.storage.layout import Home

    try:
        found = CredentialSource(Home(home_folder()).credentials, environment()).read()
    except PreflightError as error:
        yield Finding("keys", "cannot be read", str(error))
        return
    names = ", ".join(credential.name for credential in found)
    cure = "" if found else "set GEMINI_API_KEY_1, or type: agentos keys add (or work with --offline)"
    yield Finding("keys", names or "none", cure)


def _project(project: Path) -> Iterator[Finding]:
    counts = {name: len(list((project / name).glob("*.md"))) for name in ("issues", "ideas/active")}
    found = ", ".join(f"{name}/ has {number} files" for name, number in counts.items() if number)
    cure = (
        "" if found else f"go to a project with an issues folder, or type: agentos demo (looked in {project})"
    )
    yield Finding("project", found or "no issues and no briefs", cure)
    if found:
        writable = os.access(project, os.W_OK)
        yield Finding("documents", str(project / "docs"), "" if writable else f"make {project} writable")


_CHECKS: tuple[Callable[[Path], Iterator[Finding]], ...] = (_python, _home, _disk, _locks, _keys, _project)

command = click.Command(
    "doctor",
    help="Check this machine and this project; each trouble comes with its cure.",
    params=[
        click.Option(
            ["--repo"],
            type=click.Path(path_type=Path, file_okay=False),
            help="The project's folder (this one).",
        )
    ],
    callback=_run,
    epilog="\b\nExample:\n  agentos doctor --repo ../shop",
)
