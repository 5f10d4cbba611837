"""Looks at this machine and this project as a run would find them; leaves nothing behind."""

import contextlib
import os
import platform
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agentos.config.prices import price_list
from agentos.config.settings import Flags, Settings, environment, home_folder, read_settings
from agentos.core.errors import AgentosError, PreflightError
from agentos.core.quota.credentials import Credential
from agentos.run.model_selection import check_prices, check_sdks, select_models
from agentos.storage.credentials.reader import CredentialSource
from agentos.storage.files import check_home
from agentos.storage.home import Home
from agentos.storage.locks import LOCKS, ItemLocks, LockFile
from agentos.storage.peer_log_views import pool_from_notes
from agentos.workflows.sources.markdown import markdown_files, read_page

LEAST_DISK = 200 * 1024 * 1024
# No clock that is right shows a time outside of these: 2025 and 2100.
CLOCK_FROM, CLOCK_TO = 1735689600.0, 4102444800.0
SKEW = 60.0
NO_KEYS = "set GEMINI_API_KEY_1, or type: agentos keys add (or work with --offline)"
ALL_REJECTED = (
    "see why: agentos keys; ask each once more: agentos keys check; or give another: agentos keys add"
)
FOLDERS = ("issues", "ideas/active")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; a cure means that it is not well."""

    what: str
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class CheckContext:
    """What is looked at; offline needs no key."""

    project: Path
    home: Path
    offline: bool = False


def run_checks(project: Path, offline: bool) -> Iterator[Finding]:
    context = CheckContext(project.absolute(), home_folder(), offline)
    for look in (_python, _home, _permissions, _disk, _locks, _clock, _settings, _keys, _project):
        yield from look(context)


def _python(context: CheckContext) -> Iterator[Finding]:
    found = platform.python_version()
    yield Finding("python", found, "" if sys.version_info >= (3, 11) else "install Python 3.11 or newer")
    yield Finding("system", platform.system(), "" if sys.platform == "linux" else "agentos runs on Linux")


def _home(context: CheckContext) -> Iterator[Finding]:
    existed = context.home.exists()
    try:
        Home(context.home).open()
    except PreflightError as error:
        yield Finding("home", str(context.home), str(error))
        return
    if not existed:
        context.home.rmdir()
    yield Finding("home", f"{context.home} can be written")


def _permissions(context: CheckContext) -> Iterator[Finding]:
    """Nobody else may read what is in the home."""
    if not context.home.is_dir():
        yield Finding("permissions", "no home yet: it will be made for you alone")
        return
    try:
        check_home(context.home)
        open_ones = [path for path in _within(context.home) if _open_to_others(path)]
    except (PreflightError, OSError) as error:
        yield Finding("permissions", "cannot be looked at", str(error))
        return
    if open_ones:
        found = f"{len(open_ones)} may be read or changed by others, such as {open_ones[0]}"
        yield Finding("permissions", found, f"type chmod -R go= {context.home}")
    else:
        yield Finding("permissions", "the home is for you alone")


def _within(home: Path) -> Iterator[Path]:
    yield home
    for folder, folders, files in os.walk(home):
        yield from (Path(folder) / name for name in (*folders, *files))


def _open_to_others(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    return not stat.S_ISLNK(mode) and bool(mode & 0o077)


def _disk(context: CheckContext) -> Iterator[Finding]:
    for place in dict.fromkeys((_standing(context.home), _standing(context.project))):
        free = shutil.disk_usage(place).free
        cure = (
            ""
            if free > LEAST_DISK
            else f"free some space for {place}: {LEAST_DISK / 1000**2:.0f} MB are wanted"
        )
        yield Finding("disk", f"{free / 1000**3:,.1f} GB free for {place}", cure)


def _locks(context: CheckContext) -> Iterator[Finding]:
    for place in dict.fromkeys((_standing(context.home), _standing(context.project))):
        yield _lock_finding(place)
    folder = context.project / LOCKS
    if folder.is_symlink():
        yield Finding("locks", f"{folder} is a symbolic link", f"remove it: rm {folder}")
        return
    foreign = [path for path in folder.glob("task-*.lock") if not os.access(path, os.R_OK | os.W_OK)]
    if foreign:
        found = f"{len(foreign)} lock files are another user's, such as {foreign[0].name}"
        yield Finding(
            "locks", found, f"ask {foreign[0].owner()} to end that run, or remove it: rm {foreign[0]}"
        )
    held = ItemLocks(context.project).held()
    if held:
        yield Finding("locks", f"held by runs that live: {', '.join(held)} (see: agentos status)")


def _lock_finding(place: Path) -> Finding:
    """Whether the file system there keeps two processes apart; some network disks do not."""
    try:
        with tempfile.TemporaryDirectory(prefix=".agentos-doctor-", dir=place) as folder:
            first, second = LockFile(Path(folder) / "x"), LockFile(Path(folder) / "x")
            works = first.acquire() and not second.acquire()
            second.release()
            first.release()
    except OSError as error:
        return Finding("locks", f"not in {place}: {error.strerror}", f"make {place} writable")
    cure = f"two runs would not see each other: put {place} on a local disk"
    return Finding("locks", f"kept in {place}", "" if works else cure)


def _clock(context: CheckContext) -> Iterator[Finding]:
    now = time.time()
    shown = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now))
    if not CLOCK_FROM < now < CLOCK_TO:
        cure = "set it (timedatectl set-ntp true): rests and day quotas are reckoned by it"
        yield Finding("clock", f"shows {shown}", cure)
        return
    if (ahead := _newest_record(context.home) - now) > SKEW:
        cure = "set it (timedatectl set-ntp true), or move those records away"
        yield Finding("clock", f"shows {shown}, and records of runs are {ahead:.0f} s ahead of it", cure)
        return
    skew = _skew(_standing(context.home))
    cure = f"the server of {context.home} has another time: set both clocks" if abs(skew) > SKEW else ""
    yield Finding("clock", shown if not cure else f"shows {shown}, the disk {skew:+.0f} s", cure)


def _newest_record(home: Path) -> float:
    return max((path.stat().st_mtime for path in Home(home).runs.glob("2*")), default=0.0)


def _skew(place: Path) -> float:
    """How much another clock the disk goes by."""
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"x")
            file.flush()
            return os.fstat(file.fileno()).st_mtime - time.time()
    except OSError:
        return 0.0


def _settings(context: CheckContext) -> Iterator[Finding]:
    try:
        settings = _read(context)
    except AgentosError as error:
        yield Finding("settings", "cannot be used", str(error))
        return
    yield Finding("settings", "can be read (see: agentos config show --origin)")
    if settings.held_back:
        names = ", ".join(settings.held_back)
        yield Finding("trust", f"not used from agentos.toml: {names}", "read it, then type: agentos trust")


def _keys(context: CheckContext) -> Iterator[Finding]:
    settings, home = _settings_or_none(context), Home(context.home)
    try:
        limit = settings.credential_limit if settings else None
        found = CredentialSource(home.credentials, environment(), limit).read()
        keys = pool_from_notes(home.quota, found).keys
    except (AgentosError, OSError) as error:
        yield Finding("keys", "cannot be read", str(error))
        return
    enabled = [credential.name for credential in found if credential.enabled]
    rejected = keys.quarantined()
    names = ", ".join(f"{name} (quarantined)" if name in rejected else name for name in enabled)
    names = names or ("none that is enabled" if found else "none")
    if context.offline:
        yield Finding("keys", f"{names}, and offline needs none")
        return
    yield Finding("keys", names, "" if keys.active() else ALL_REJECTED if enabled else NO_KEYS)
    if keys.active() and settings:
        yield _models(settings, [one for one in found if one.enabled and one.name not in rejected])


def _models(settings: Settings, credentials: list[Credential]) -> Finding:
    """Whether every role has a model, and the model a key, an SDK and a price, as a run wants it."""
    try:
        check_sdks(credentials)
        found = select_models(settings, tuple(dict.fromkeys(one.provider for one in credentials)))
        check_prices(settings, found.roles, price_list(settings.prices))
    except AgentosError as error:
        return Finding("models", "cannot be used", str(error))
    told = "; ".join(f"{role.role} {', '.join(role.models)}" for role in found.roles)
    return Finding("models", told, found.problem)


def _read(context: CheckContext) -> Settings:
    return read_settings(Flags(repo=context.project))


def _settings_or_none(context: CheckContext) -> Settings | None:
    """What is wrong with them is a finding of its own."""
    with contextlib.suppress(AgentosError):
        return _read(context)
    return None


def _project(context: CheckContext) -> Iterator[Finding]:
    project = context.project
    counts = {name: len(list((project / name).glob("*.md"))) for name in FOLDERS}
    found = ", ".join(
        f"{name}/ has {number} {'file' if number == 1 else 'files'}"
        for name, number in counts.items()
        if number
    )
    cure = f"go to a project, or make one: agentos init (looked in {project})"
    yield Finding("project", found or "no issues and no briefs", "" if found else cure)
    if found:
        docs = project / "docs"
        closed = next((place for place in (docs, project) if place.exists()), project)
        writable = os.access(closed, os.W_OK) and (closed.is_dir())
        yield Finding(
            "documents", f"go to {docs}", "" if writable else f"make {closed} a folder that you can write to"
        )
    if passed_over := _unnumbered(project / FOLDERS[0]):
        cure = "give each a number: first in its name (42-title.md), or as number in its front matter"
        yield Finding("issues", f"passed over, for want of a number: {', '.join(passed_over)}", cure)
    links = [name for name in ("docs", "issues", "ideas") if (project / name).is_symlink()]
    if links:
        cure = "replace them by folders: what is written never follows a link"
        yield Finding("project", f"symbolic links: {', '.join(links)}", cure)


def _unnumbered(issues: Path) -> list[str]:
    """A folder may be explained in it; everything else there is meant as an issue."""
    pages = map(read_page, markdown_files(issues))
    return [page.path.name for page in pages if page.number is None and page.path.stem.lower() != "readme"]


def _standing(place: Path) -> Path:
    """The place itself, or the nearest folder above it that is there."""
    while not place.is_dir() and place != place.parent:
        place = place.parent
    return place
