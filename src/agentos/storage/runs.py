"""Run folders: creating, finding, reading and pruning them."""

import contextlib
import json
import os
import re
import shutil
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from agentos.core.constants import DAY
from agentos.core.errors import UnsupportedFormat
from agentos.core.planning.exec_command import is_exec
from agentos.core.protocol import events
from agentos.core.protocol.codec import type_marker
from agentos.core.protocol.results import Ending
from agentos.core.run_state.run_record import RunRecord
from agentos.core.run_state.run_stats import RunStats
from agentos.regular_files import UnsafeFile
from agentos.storage.files import TMP_PREFIX, private_folder
from agentos.storage.journal import (
    JournalEntry,
    check_format,
    lines_with,
    read_entry,
    read_first_record,
    read_journal,
    read_lines,
)
from agentos.storage.locks import LockFile, is_locked, stopped_holder

LATEST = "latest"
LOCK = "run.lock"
_MAX_SAME_SECOND = 1000


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How many run folders to keep. A run that exceeds any of the limits is pruned, oldest first."""

    runs: int = 50
    bytes: int = 1024**3
    seconds: float = 90 * DAY


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The records of the current run. Its lock is held for as long as the run is alive."""

    path: Path
    lock: LockFile

    @property
    def id(self) -> str:
        return self.path.name

    def close(self) -> None:
        self.lock.release()


def new_run(runs: Path, wall: float) -> RunFolder:
    """Create a folder named by the start time in UTC, with a suffix if two runs start in the same second."""
    private_folder(runs)
    stamp = datetime.fromtimestamp(wall, UTC).strftime("%Y%m%dT%H%M%SZ")
    for suffix in ("", *(f"-{number}" for number in range(2, _MAX_SAME_SECOND))):
        with contextlib.suppress(FileExistsError):
            path = runs / f"{stamp}{suffix}"
            path.mkdir(mode=0o700)
            lock = LockFile(path / LOCK)
            lock.acquire()
            _update_latest(path)
            return RunFolder(path, lock)
    raise FileExistsError(f"{runs}/{stamp} and {_MAX_SAME_SECOND - 2} more")


def run_folders(runs: Path) -> list[Path]:
    """All run folders, newest first."""
    if not runs.is_dir():
        return []
    # is_symlink is checked first: a link that is replaced between the two checks must not pass for a folder.
    found = [path for path in runs.iterdir() if not path.is_symlink() and path.is_dir()]
    return sorted(found, key=lambda path: _sort_key(path.name), reverse=True)


def is_alive(run: Path) -> bool:
    """Whether the run's coordinator still holds its lock. Does not touch the lock."""
    return is_locked(run / LOCK)


def stopped_process(run: Path) -> int | None:
    """The pid of the run's coordinator if it is stopped: by Ctrl-Z, or by a SIGSTOP that it could not report."""
    return stopped_holder(run / LOCK)


def load_run_stats(run: Path) -> RunStats:
    """The statistics of a run, computed from its journal."""
    stats = RunStats()
    with contextlib.suppress(FileNotFoundError):
        for entry in read_journal(run):
            with contextlib.suppress(KeyError):
                stats.handle(entry.event, entry.at)
    return stats


def load_run_totals(run: Path) -> RunStats | None:
    """The totals of a run that has ended, from the few lines that hold them; None if it has not ended."""
    stats = RunStats()
    kinds = (events.RunStarted, events.ItemEnded, events.CallCompleted, events.RunEnded)
    with contextlib.suppress(OSError, UnsafeFile):
        if next(lines_with(run, type_marker(events.RunEnded)), None) is None:
            return None
        check_format(run)
        for line in (line for kind in kinds for line in lines_with(run, type_marker(kind))):
            with contextlib.suppress(KeyError):
                if entry := read_entry(line):
                    stats.handle(entry.event, entry.at)
    return stats if stats.ended else None


def load_run_record(run: Path) -> RunRecord:
    """The record of a run that is in progress, has ended or was killed. Unreadable lines are counted."""
    record = RunRecord(run.resolve().name, is_alive(run))
    for line in read_lines(run):
        if isinstance(line, JournalEntry):
            record.handle(line.event, line.at)
        elif not (line.torn and record.alive):  # a living run is still writing its last line
            record.unread += 1
            record.torn = record.torn or line.torn
    return record


def last_run_of(runs: Path, workflow: str, project: Path) -> RunStats | None:
    """The statistics of the newest run of this workflow on this project. Raises UnsupportedFormat."""
    run = _newest(runs, workflow, project)
    return load_run_stats(run) if run else None


def failed_before(runs: Path, workflow: str, project: Path, *, required: bool = False) -> set[str]:
    """The items that failed in the newest run of this workflow on this project.

    If another version of agentos wrote that run, raises UnsupportedFormat when the answer is `required`, and otherwise
    returns no items.
    """
    run = _newest(runs, workflow, project)
    if run is None:
        return set()
    try:
        check_format(run)
    except UnsupportedFormat:
        if required:
            raise
        return set()
    endings = {}
    # Parses only the lines that matter: the journal may be long.
    for line in lines_with(run, type_marker(events.ItemEnded)):
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            record = json.loads(line)
            endings[str(record["item"])] = str(record["outcome"]["ending"])
    return {item for item, ending in endings.items() if ending in (Ending.FAILED, Ending.FAILED_IN_OTHER_RUN)}


def previous_run(folders: list[Path], run: Path) -> Path | None:
    """Of these runs, newest first, the last one before `run` of the same workflow on the same project."""
    started = read_first_record(run)
    older = folders[folders.index(run) + 1 :] if run in folders else []
    return _first_of(older, started.get("workflow"), started.get("project"))


def _newest(runs: Path, workflow: str, project: Path) -> Path | None:
    return _first_of(run_folders(runs), workflow, str(project))


def _first_of(folders: list[Path], workflow: object, project: object) -> Path | None:
    for run in folders:
        with contextlib.suppress(OSError, UnsafeFile):
            started = read_first_record(run)
            if started.get("workflow") == workflow and started.get("project") == project:
                return run
    return None


@dataclass(frozen=True, slots=True)
class OldRun:
    """A run to be pruned, and the reason."""

    path: Path
    bytes: int
    seconds: float
    reason: str


def old_runs(runs: Path, keep: RetentionPolicy, now: float) -> list[OldRun]:
    """The runs that exceed the retention policy, newest first.

    Never a living run, and never the newest of a workflow on a project, which `--failed`, forecasts and reviews read.
    """
    found, total_size, seen = [], 0, set[tuple[str, object]]()
    for index, run in enumerate(run_folders(runs)):
        is_newest = _is_newest(run, seen)
        with contextlib.suppress(FileNotFoundError):  # another process is removing it
            size = sum(file.stat().st_size for file in os.scandir(run) if file.is_file(follow_symlinks=False))
            age = max(0.0, now - run.stat().st_mtime)
            total_size += size
            reason = _prune_reason(keep, index, total_size, age)
            if index and reason and not is_newest and not is_alive(run):
                found.append(OldRun(run, size, age, reason))
    return found


def _is_newest(run: Path, seen: set[tuple[str, object]]) -> bool:
    """Whether no run of this workflow on this project was seen before. False if the project is gone.

    All `agentos exec` commands on a project count as one workflow, since there may be any number of them.
    """
    with contextlib.suppress(OSError, UnsafeFile):
        started = read_first_record(run)
        project, workflow = started.get("project"), str(started.get("workflow"))
        key = "exec" if is_exec(workflow) else workflow, project
        if key not in seen and isinstance(project, str) and os.path.isdir(project):
            seen.add(key)
            return True
    return False


def _prune_reason(keep: RetentionPolicy, index: int, total_size: int, age: float) -> str:
    if index >= keep.runs:
        return "too many"
    if total_size > keep.bytes:
        return "too large together"
    return "too old" if age > keep.seconds else ""


def prune(runs: Path, keep: RetentionPolicy, now: float) -> list[Path]:
    """Remove old runs and return those that are gone. Also finalizes the records of killed runs."""
    old = old_runs(runs, keep, now)
    finalize_killed_runs(runs)
    for run in old:
        shutil.rmtree(run.path, ignore_errors=True)
    return [run.path for run in old if not run.path.exists()]


def finalize_killed_runs(runs: Path) -> None:
    """Complete the records of killed runs: partial files get their final names, sockets and leftovers are removed."""
    for run in run_folders(runs):
        unfinished = _unfinished_files(run)
        if unfinished and not is_alive(run):
            for path in unfinished:
                with contextlib.suppress(OSError):  # another process is doing the same
                    _finalize(path)


def _unfinished_files(run: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        entries = list(os.scandir(run))
        return [Path(entry.path) for entry in entries if entry.name.startswith(".") or _is_socket(entry)]
    return []


def _is_socket(entry: os.DirEntry[str]) -> bool:
    return not entry.is_file() and stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)


def _finalize(path: Path) -> None:
    final = path.with_name(path.name.removeprefix("."))
    if path == final or path.name.startswith(TMP_PREFIX) or final.exists():
        path.unlink()
    else:
        path.rename(final)


def _sort_key(name: str) -> tuple[str, int]:
    stamp, _, suffix = name.partition("-")
    return stamp, int(suffix) if re.fullmatch(r"[0-9]{1,9}", suffix) else 1


def _update_latest(run: Path) -> None:
    """Point `latest` at the run, and remove the temporary links of runs that died while doing this."""
    prefix = f".{LATEST}-"
    for leftover in run.parent.glob(f"{prefix}*"):
        if not is_alive(run.with_name(leftover.name.removeprefix(prefix))):
            leftover.unlink(missing_ok=True)
    tmp = run.with_name(f"{prefix}{run.name}")
    os.symlink(run.name, tmp)
    latest = run.with_name(LATEST)
    try:
        os.replace(tmp, latest)
    except IsADirectoryError as error:
        tmp.unlink(missing_ok=True)
        problem = "it is a folder, expected the link to the latest run: move it away"
        raise UnsafeFile(latest, problem) from error
