"""Makes the project's code available to a run: takes a snapshot, updates its index, reports progress."""

import contextlib
import difflib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agentos.codebase.context import CONVENTIONS
from agentos.codebase.index_process import IndexProcess, IndexProgress, IndexState, is_indexed
from agentos.codebase.indexing import IndexJob
from agentos.codebase.signatures import MISSING_EXTRA, has_signatures, language_of
from agentos.codebase.skip_rules import FileSkip, skip_by_name
from agentos.codebase.source_files import ProjectSource, Snapshot
from agentos.config.settings import Settings
from agentos.core.errors import PreflightError
from agentos.core.planning.worker_task import CodeAccess
from agentos.storage.files import private_folder
from agentos.storage.home import Home

START_WAIT = 10.0  # seconds a run waits for its index before it starts without it
QUIET_PERIOD = 1.0  # seconds before the first progress line
PROGRESS_INTERVAL = 5.0  # seconds between two progress lines


@dataclass(frozen=True, slots=True)
class PreparedCode:
    """How workers access the code, and the process that may still be indexing it."""

    access: CodeAccess
    process: IndexProcess | None = None

    def look_after(self) -> None:
        """Restart the process if a file crashed it. Never blocks."""
        if self.process:
            self.process.poll()


class CodeSetup:
    """Prepares the code of one project. `environment` is that of git and of the indexing process."""

    def __init__(
        self, settings: Settings, environment: Mapping[str, str], echo: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._environment = environment
        self._echo = echo

    def prepare(
        self, stack: contextlib.ExitStack, check: Callable[[], None], wait: float = START_WAIT
    ) -> PreparedCode | None:
        """Return the code, indexed or (after `wait` seconds) still being indexed; None if it is switched off or missing.

        `stack` ends the process; `check` may raise to stop. Raises PreflightError for a named file that cannot be shown.
        """
        settings = self._settings
        if settings.code_tokens == 0:
            return None
        source = ProjectSource(settings.project, self._environment)
        snapshot = source.take_snapshot()
        check()
        _check_named(settings.context, snapshot)
        if not snapshot.files:
            return None
        if not has_signatures() and any(language_of(file.path) for file in snapshot.files):
            self._echo(f"[COORDINATOR] {MISSING_EXTRA}")
        database = Home(settings.home).code_index(settings.project)
        private_folder(database.parent)
        access = CodeAccess(
            str(database), snapshot.name, snapshot.commit, settings.code_tokens, settings.context
        )
        job = IndexJob(database, source, snapshot, (*settings.context, *CONVENTIONS))
        if is_indexed(job):
            return PreparedCode(access)
        process = IndexProcess(job)
        stack.callback(process.close)
        return PreparedCode(access, self._await(process, check, wait))

    def _await(self, process: IndexProcess, check: Callable[[], None], wait: float) -> IndexProcess | None:
        next_line = time.monotonic() + QUIET_PERIOD

        def on_progress(progress: IndexProgress) -> None:
            nonlocal next_line
            check()
            if progress.total and time.monotonic() >= next_line:
                next_line = time.monotonic() + PROGRESS_INTERVAL
                self._echo(f"[COORDINATOR] Indexing the code: {progress.done:,} of {progress.total:,} files")

        match process.wait(wait, on_progress):
            case IndexState.READY:
                return None
            case IndexState.BUILDING:
                self._echo("[COORDINATOR] Indexing continues in the background; drafts wait for it.")
                return process
            case IndexState.FAILED:
                raise PreflightError(
                    "the code cannot be indexed: free space in the home, or set code_tokens = 0 in agentos.toml "
                    "to work without it"
                )


def _check_named(named: tuple[str, ...], snapshot: Snapshot) -> None:
    """Raise PreflightError unless every named file can be shown."""
    sizes = {file.path: file.size for file in snapshot.files}
    where = f"at commit {snapshot.commit[:8]}" if snapshot.commit else "in the project"
    for path in named:
        if path not in sizes:
            close = difflib.get_close_matches(path, sizes, 1)
            hint = f"did you mean {close[0]}?" if close else "expected a path from the project's folder"
            raise PreflightError(f"context: there is no file {path} {where}: {hint}")
        if skip_by_name(path, sizes[path]) is FileSkip.SENSITIVE:
            raise PreflightError(
                f"context: {path} may hold secrets, so it is not sent to a model: leave it out"
            )
