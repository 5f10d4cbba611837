"""Builds the index in a separate process, so that neither a large project nor a hostile file can stop a run.

A parser is C code that reads whatever a repository contains. If a file crashes it, or takes longer than `PARSE_LIMIT`,
only that process dies; it is restarted and indexes that file without definitions.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum, auto
from pathlib import Path

from agentos.codebase.index import CodeIndex
from agentos.codebase.indexing import IndexJob, index_lock, update_index
from agentos.codebase.source_files import ProjectSource, Snapshot, SourceFile
from agentos.core.errors import PreflightError
from agentos.regular_files import UnsafeFile, open_regular, read_regular

PARSE_LIMIT = 5.0  # seconds of CPU for one file
MAX_RESTARTS = 5  # after that, nothing more is parsed
POLL_INTERVAL = 0.05  # seconds
_EXIT_GRACE = 2.0  # seconds
_NO_BLOB = "-"


class IndexState(Enum):
    BUILDING = auto()
    READY = auto()
    FAILED = auto()


class IndexProcess:
    """A running update of an index. Call `poll` from time to time, and `close` in any case."""

    def __init__(self, job: IndexJob, parse_limit: float = PARSE_LIMIT) -> None:
        self._job = job
        self._parse_limit = parse_limit
        self._restarts = 0
        self._is_closed = False
        self._unparsed: frozenset[str] | None = frozenset()
        self._process = _start(job, self._unparsed, parse_limit)

    def poll(self) -> IndexState:
        """Return the progress; restart the process if a file has killed it."""
        code = self._process.poll()
        if code is None:
            return IndexState.BUILDING
        if code == 0:
            return IndexState.READY
        if code > 0 or self._is_closed or self._restarts > MAX_RESTARTS:
            return IndexState.FAILED
        self._restarts += 1
        culprit = read_progress(self._job.database).blob
        is_known = culprit != _NO_BLOB and self._restarts < MAX_RESTARTS
        self._unparsed = (self._unparsed or frozenset()) | {culprit} if is_known else None
        self._process = _start(self._job, self._unparsed, self._parse_limit)
        return IndexState.BUILDING

    def wait(self, seconds: float, on_progress: Callable[["IndexProgress"], None]) -> IndexState:
        """Poll until it has ended or the time is up; `on_progress` is called often, and may raise to stop."""
        deadline = time.monotonic() + seconds
        while (state := self.poll()) is IndexState.BUILDING and time.monotonic() < deadline:
            on_progress(read_progress(self._job.database))
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(min(POLL_INTERVAL, max(0.0, deadline - time.monotonic())))
        return state

    def close(self) -> None:
        """End the process; what it has indexed stays."""
        self._is_closed = True
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_EXIT_GRACE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """Files done and in total, and the content that is being parsed."""

    done: int = 0
    total: int = 0
    blob: str = _NO_BLOB


def read_progress(database: Path) -> IndexProgress:
    try:
        done, total, blob = read_regular(_state_file(database)).decode().split()
        return IndexProgress(int(done), int(total), blob)
    except (OSError, UnsafeFile, ValueError):
        return IndexProgress()


def is_indexed(job: IndexJob) -> bool:
    """Whether the index already has the whole snapshot, and the texts of the files to show whole."""
    try:
        with CodeIndex(job.database, job.snapshot.name) as index:
            files = (index.file(path) for path in job.whole)
            return all(file is None or file.skipped or index.text(file.blob) is not None for file in files)
    except PreflightError:
        return False


def is_being_built(database: Path) -> bool:
    """Whether a process holds the index's write lock."""
    with index_lock(database, wait=False) as is_free:
        return not is_free


def _start(job: IndexJob, unparsed: frozenset[str] | None, parse_limit: float) -> subprocess.Popen[bytes]:
    """`unparsed` are contents that must not be parsed; None for all of them."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "agentos.codebase.index_process", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=dict(job.source.environment),
        start_new_session=True,
    )
    assert process.stdin
    message = {
        "database": str(job.database),
        "project": str(job.source.project),
        "whole": job.whole,
        "unparsed": None if unparsed is None else sorted(unparsed),
        "parse_limit": parse_limit,
        "snapshot": asdict(job.snapshot),
    }
    with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
        stdin.write(json.dumps(message).encode())
    return process


def _state_file(database: Path) -> Path:
    return Path(f"{database}.state")


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Entry point of the process: reads its job from standard input and ends with its parent."""
    parent = int(arguments[0])
    message = json.load(sys.stdin)
    given = message["snapshot"]
    snapshot = Snapshot(given["name"], given["commit"], tuple(SourceFile(**file) for file in given["files"]))
    database, unparsed = Path(message["database"]), message["unparsed"]
    state = open_regular(_state_file(database), flags=os.O_RDWR | os.O_CREAT)
    progress = [0, 0]

    def report(blob: str) -> None:
        if os.getppid() != parent:
            os._exit(1)
        os.pwrite(state, f"{progress[0]:>9} {progress[1]:>9} {blob:<64}\n".encode(), 0)

    def on_progress(done: int, total: int) -> None:
        progress[:] = done, total
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        report(_NO_BLOB)

    def may_parse(blob: str) -> bool:
        if unparsed is None or blob in unparsed:
            return False
        report(blob)
        # Without a handler, the signal ends this process even while C code runs.
        signal.setitimer(signal.ITIMER_VIRTUAL, message["parse_limit"])
        return True

    with index_lock(database):
        source = ProjectSource(Path(message["project"]), environment)
        update_index(IndexJob(database, source, snapshot, tuple(message["whole"])), on_progress, may_parse)


if __name__ == "__main__":
    from agentos.config.settings import environment

    main(sys.argv[1:], environment())
