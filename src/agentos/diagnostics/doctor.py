"""The checks of `agentos doctor`: the machine and the project as a run would find them. Changes nothing."""

import contextlib
import os
import platform
import shlex
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agentos.config.file import price_list
from agentos.config.project import BACKLOG_FOLDERS as FOLDERS
from agentos.config.project import path_from_here, repo_option
from agentos.config.settings import Flags, Settings, environment, home_folder, read_settings
from agentos.core.errors import AgentosError, PreflightError
from agentos.core.planning.exec_command import WorkspaceKind
from agentos.core.planning.items import SkipReason
from agentos.core.planning.plan import Selection, make_plan, merge_duplicates
from agentos.core.quota.credentials import Credential
from agentos.outputs.format import count
from agentos.outputs.plan_text import changed_lines, ignored_lines, large_lines, skipped_lines
from agentos.platform_support import platform as platform_calls
from agentos.regular_files import is_inside, read_regular
from agentos.run.model_selection import check_prices, select_models
from agentos.storage.credentials.reader import CredentialSource
from agentos.storage.home import Home, check_home
from agentos.storage.locks import ItemLocks, LockFile, NoFileLocks
from agentos.storage.peer_log_views import pool_from_notes
from agentos.storage.project_access import LOCKS, WRITTEN_FOLDERS, denied_folders, sharing_fix, user_name
from agentos.workflows.issue import ACTIVE, DONE, IssueWorkflow
from agentos.workflows.lld import ISSUES, LldWorkflow
from agentos.workflows.markdown import in_file

MIN_FREE_DISK = 200 * 1024 * 1024  # bytes
# A correct clock shows a time between these: 2025 and 2100.
EARLIEST_TIME, LATEST_TIME = 1735689600.0, 4102444800.0
MAX_CLOCK_SKEW = 60.0  # seconds
NO_KEYS = "set GEMINI_API_KEY_1, or type: agentos keys add (or work with --offline)"
ALL_REJECTED = "see why: agentos keys; test them again: agentos keys check; or add another: agentos keys add"
MAX_PROBLEMS = 10
WORKFLOW_IMPORT = b"agentos.workflows"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: what was checked, what was found and, if it failed, how to fix it.

    start: the command that starts a run of this project, if the check has determined it
    is_warning: whether it deserves attention, although it prevents no run
    """

    what: str
    found: str
    fix: str = ""
    start: str = ""
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class CheckContext:
    """What to check; an offline run needs no key."""

    project: Path
    home: Path
    offline: bool = False


def run_checks(project: Path, offline: bool) -> Iterator[Finding]:
    """Run every check, in the order in which a run would fail."""
    context = CheckContext(project.absolute(), home_folder(), offline)
    for check in (_python, _home, _permissions, _disk, _locks, _clock, _settings, _keys, _project, _items):
        try:
            yield from check(context)
        except PreflightError as error:
            yield Finding(check.__name__.strip("_"), "cannot be checked", str(error))


def _python(context: CheckContext) -> Iterator[Finding]:
    found = platform.python_version()
    yield Finding("python", found, "" if sys.version_info >= (3, 11) else "install Python 3.11 or newer")
    yield Finding("system", f"{platform.system()}, with {platform_calls().name}")


def _home(context: CheckContext) -> Iterator[Finding]:
    existed = context.home.exists()
    try:
        Home(context.home).open()
    except PreflightError as error:
        yield Finding("home", str(context.home), str(error))
        return
    if not existed:
        context.home.rmdir()
    yield Finding("home", f"{context.home} is writable")


def _permissions(context: CheckContext) -> Iterator[Finding]:
    """Other users must not be able to read anything in the home."""
    if not context.home.is_dir():
        yield Finding("permissions", "no home yet: it will be created for you alone")
        return
    try:
        check_home(context.home)
        exposed = [path for path in _all_paths(context.home) if _is_exposed(path)]
    except (PreflightError, OSError) as error:
        yield Finding("permissions", "cannot check them", str(error))
        return
    if exposed:
        found = (
            f"{count(len(exposed), 'file is', 'files are')} accessible to other users, such as {exposed[0]}"
        )
        yield Finding("permissions", found, f"type chmod -R go= {shlex.quote(str(context.home))}")
    else:
        yield Finding("permissions", "only you can access the home")


def _all_paths(home: Path) -> Iterator[Path]:
    """Everything in the home except files of worktrees and copies, whose folders only their owner can enter."""
    yield home
    closed = {str(home / kind.folder) for kind in WorkspaceKind}
    for folder, folders, files in os.walk(home):
        if folder in closed and not _is_exposed(Path(folder)):
            folders.clear()
            continue
        yield from (Path(folder) / name for name in (*folders, *files))


def _is_exposed(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    return not stat.S_ISLNK(mode) and bool(mode & 0o077)


def _disk(context: CheckContext) -> Iterator[Finding]:
    for folder in dict.fromkeys((_nearest_folder(context.home), _nearest_folder(context.project))):
        free = shutil.disk_usage(folder).free
        fix = f"free some space for {folder}: at least {MIN_FREE_DISK / 1000**2:.0f} MB are needed"
        yield Finding(
            "disk", f"{free / 1000**3:,.1f} GB free for {folder}", "" if free > MIN_FREE_DISK else fix
        )


def _locks(context: CheckContext) -> Iterator[Finding]:
    for folder in dict.fromkeys((_nearest_folder(context.home), _nearest_folder(context.project))):
        yield _check_locking(folder)
    locks = context.project / LOCKS
    if locks.is_symlink():
        yield Finding("locks", f"{locks} is a symbolic link", f"remove it: rm {locks}")
        return
    unreadable = [path for path in locks.glob("task-*.lock") if not os.access(path, os.R_OK)]
    if unreadable:
        owner = user_name(unreadable[0].lstat().st_uid)
        count_text = count(len(unreadable), "lock file belongs", "lock files belong")
        fix = f"ask {owner} to end that run and to type: chmod g+rw {unreadable[0]}"
        yield Finding("locks", f"{count_text} to {owner} alone, such as {unreadable[0].name}", fix)
    held = ItemLocks(context.project).held()
    if held:
        users = sorted({holder.user for holder in held.values() if holder and holder.user})
        whose = f" of {', '.join(users)}" if users else ""
        yield Finding("locks", f"held by active runs{whose}: {', '.join(held)} (see: agentos status)")


def _check_locking(folder: Path) -> Finding:
    """Whether locks work on this file system; on some network disks they do not."""
    try:
        with tempfile.TemporaryDirectory(prefix=".agentos-doctor-", dir=folder) as temporary:
            first, second = LockFile(Path(temporary) / "x"), LockFile(Path(temporary) / "x")
            works = first.acquire() and not second.acquire()
            second.release()
            first.release()
    except NoFileLocks as error:
        return Finding("locks", f"do not work in {folder}", str(error))
    except OSError as error:
        return Finding("locks", f"cannot lock in {folder}: {error.strerror}", f"make {folder} writable")
    if not works:
        fix = f"two runs could work on the same item: put {folder} on a local disk"
        return Finding("locks", f"do not work in {folder}", fix)
    return Finding("locks", f"work in {folder}")


def _clock(context: CheckContext) -> Iterator[Finding]:
    now = time.time()
    shown = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now))
    if not EARLIEST_TIME < now < LATEST_TIME:
        fix = "set it (timedatectl set-ntp true): cooldowns and daily quotas depend on it"
        yield Finding("clock", f"shows {shown}", fix)
        return
    if (ahead := _newest_record(context.home) - now) > MAX_CLOCK_SKEW:
        fix = "set it (timedatectl set-ntp true), or move those records away"
        yield Finding("clock", f"shows {shown}, but run records are {ahead:.0f} s ahead of it", fix)
        return
    skew = _clock_skew(_nearest_folder(context.home))
    fix = (
        f"the file server of {context.home} has a different time: set both clocks"
        if abs(skew) > MAX_CLOCK_SKEW
        else ""
    )
    yield Finding("clock", shown if not fix else f"shows {shown}, the file server {skew:+.0f} s", fix)


def _newest_record(home: Path) -> float:
    return max((path.stat().st_mtime for path in Home(home).runs.glob("2*")), default=0.0)


def _clock_skew(folder: Path) -> float:
    """How far the file system's clock is ahead of ours, in seconds."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
            file.flush()
            return os.fstat(file.fileno()).st_mtime - time.time()
    except OSError:
        return 0.0


def _settings(context: CheckContext) -> Iterator[Finding]:
    try:
        settings = _read(context)
    except AgentosError as error:
        yield Finding("settings", "invalid", str(error))
        return
    yield Finding("settings", "valid (see: agentos config show --origin)")
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
        yield Finding("keys", "cannot read them", str(error))
        return
    enabled = [credential.name for credential in found if credential.enabled]
    rejected = keys.quarantined()
    names = ", ".join(f"{name} (quarantined)" if name in rejected else name for name in enabled)
    names = names or ("none enabled" if found else "none")
    if context.offline:
        yield Finding("keys", f"{names} (an offline run needs none)")
        return
    yield Finding("keys", names, "" if keys.active() else ALL_REJECTED if enabled else NO_KEYS)
    if settings and not keys.active():
        yield from _check_roles(settings)
    elif settings:
        yield from _check_models(settings, [key for key in found if key.enabled and key.name not in rejected])


def _check_roles(settings: Settings) -> Iterator[Finding]:
    """Whether the settings name existing providers; used without a key, when it is unknown which can serve."""
    try:
        select_models(settings, ())
    except AgentosError as error:
        yield Finding("models", "cannot be used", str(error))


def _check_models(settings: Settings, credentials: list[Credential]) -> Iterator[Finding]:
    """Whether every role has a model with a key, an SDK and, with a budget, a price."""
    try:
        selection = select_models(settings, tuple(dict.fromkeys(key.provider for key in credentials)))
        check_prices(settings, selection.roles, price_list(settings.prices))
    except AgentosError as error:
        yield Finding("models", "cannot be used", str(error))
        return
    found = "; ".join(f"{role.role} {', '.join(role.models)}" for role in selection.roles)
    yield Finding("models", found, selection.problem)
    for warning in selection.warnings:
        yield Finding("models", warning, is_warning=True)


def _read(context: CheckContext) -> Settings:
    return read_settings(Flags(repo=context.project))


def _settings_or_none(context: CheckContext) -> Settings | None:
    """The settings; None if they are invalid, which another check reports."""
    with contextlib.suppress(AgentosError):
        return _read(context)
    return None


def _project(context: CheckContext) -> Iterator[Finding]:
    project = context.project
    counts = {name: len(list((project / name).glob("*.md"))) for name in FOLDERS}
    found = ", ".join(f"{name}/ has {count(number, 'file')}" for name, number in counts.items() if number)
    module = "" if found else _own_workflow(project)
    if module:
        yield Finding("project", f"{module}.py has a workflow", start=f"agentos run {module}:workflow")
        return
    fix = f"go to a project, or create one: agentos init (looked in {project})"
    yield Finding("project", found or "no issues and no briefs", "" if found else fix)
    if found:
        yield from _documents(context)
    links = [name for name in ("docs", "issues", "ideas") if (project / name).is_symlink()]
    if links:
        fix = "replace them with folders: agentos does not write through symbolic links"
        yield Finding("project", f"symbolic links: {', '.join(links)}", fix)


def _own_workflow(project: Path) -> str:
    """The name of a module in the project that contains a workflow; empty if none does."""
    for path in sorted(project.glob("*.py")):
        with contextlib.suppress(OSError, PreflightError):
            if WORKFLOW_IMPORT in read_regular(path, project):
                return path.stem
    return ""


def _documents(context: CheckContext) -> Iterator[Finding]:
    """Whether this user may write what a run writes, even where another user of a shared checkout has started."""
    project, docs = context.project, context.project / "docs"
    folders = (*WRITTEN_FOLDERS, *((ACTIVE, DONE) if (project / ACTIVE).is_dir() else ()))
    if docs.exists() and not docs.is_dir():
        yield Finding("documents", f"{docs} is not a folder", f"make {docs} a writable folder")
    elif denied := denied_folders(project, folders):
        more = f", and {count(len(denied) - 1, 'more folder')}" if len(denied) > 1 else ""
        yield Finding("documents", denied[0].problem + more, sharing_fix(project, denied))
    else:
        yield Finding("documents", f"written to {path_from_here(docs)}")


def _items(context: CheckContext) -> Iterator[Finding]:
    """The files that a run would skip, and the items that it would start and fail."""
    settings = _settings_or_none(context)
    on_github = settings is not None and bool(settings.github)
    for workflow in (LldWorkflow(), IssueWorkflow()):
        folder = workflow.folders[0]
        what = folder.partition("/")[0]
        is_readable = is_inside(
            context.project / folder, context.project
        )  # otherwise reported by its own check
        if not is_readable or not (context.project / folder).is_dir() or (on_github and folder == ISSUES):
            continue
        try:
            candidates = merge_duplicates(workflow.candidates(context.project))
            skipped = workflow.skipped(context.project)
        except OSError as error:
            yield Finding(what, f"cannot read {folder}/: {error.strerror}", f"make {folder}/ readable")
            continue
        # Not a problem: a subfolder may be an archive.
        aside = (SkipReason.SUBFOLDER, SkipReason.FOLDER)
        for line in skipped_lines([file for file in skipped if file.reason in aside]):
            yield Finding(what, line)
        apart = (SkipReason.UNREADABLE, *aside)
        repo = repo_option(context.project, environment())
        for line in skipped_lines([file for file in skipped if file.reason not in apart], repo):
            found, _, fix = line.partition("; ")
            yield Finding(what, found, fix)
        problems = [
            in_file(file.source, text)
            for file in skipped
            if file.reason is SkipReason.UNREADABLE
            for text in file.problems
        ]
        pending = make_plan(candidates, Selection(everything=True)).entries
        for line in large_lines(pending):
            yield Finding(what, line, is_warning=True)
        changed = [each for each in candidates if each.changed_since_approval and not each.is_closed]
        for line in (*ignored_lines(pending), *changed_lines(changed)):
            yield Finding(what, line, is_warning=True)
        problems += [text for entry in pending for text in entry.problems]
        fix = f"a run cannot use it: correct it, or move it out of {folder}/"
        for problem in problems[:MAX_PROBLEMS]:
            yield Finding(what, problem, fix)
        if (more := len(problems) - MAX_PROBLEMS) > 0:
            listing = f"{workflow.name}-workflow --all --dry-run{repo}"
            yield Finding(what, f"{count(more, 'more problem')} of this kind, listed by: {listing}", fix)


def _nearest_folder(path: Path) -> Path:
    """The path itself if it is a folder, else the nearest existing one above it."""
    while not path.is_dir() and path != path.parent:
        path = path.parent
    return path
