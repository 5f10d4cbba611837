"""The project's code as graph nodes use it: a context for an issue, and checks of a draft."""

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from agentos.codebase.context import CodeContext, ContextBuilder
from agentos.codebase.draft_check import CheckResult, check_draft
from agentos.codebase.index import CodeIndex
from agentos.codebase.index_process import is_being_built, read_progress
from agentos.core.errors import PreflightError
from agentos.core.planning.worker_task import CodeAccess

_POLL_INTERVAL = 0.2  # seconds
_SAY_INTERVAL = 15.0  # seconds
_START_GRACE = 10.0  # seconds without a builder that are tolerated, as between two starts of the process


class ProjectCode:
    """One snapshot of the project's code, read from its index.

    Await `ready` first: a run starts while the index of a large project is still being built.
    """

    def __init__(self, access: CodeAccess, project: Path, start_grace: float = _START_GRACE) -> None:
        self._access = access
        self._project = project
        self._start_grace = start_grace

    @property
    def commit(self) -> str:
        """The commit, or the name of the snapshot for a project that is not under git."""
        return self._access.commit or self._access.snapshot

    @property
    def snapshot(self) -> str:
        return self._access.snapshot

    async def ready(self, say: Callable[[str], None]) -> bool:
        """Wait until the snapshot is indexed; False if nobody is indexing it."""
        path = Path(self._access.index)
        last_built, next_line = time.monotonic(), time.monotonic() + 1.0
        while not self.is_indexed():
            now = time.monotonic()
            if is_being_built(path):
                last_built = now
            elif now - last_built > self._start_grace:
                return False
            if now >= next_line:
                next_line = now + _SAY_INTERVAL
                progress = read_progress(path)
                say(f"Waiting for the code index ({progress.done:,} of {progress.total:,} files)")
            await asyncio.sleep(_POLL_INTERVAL)
        return True

    def context(self, title: str, text: str, own_design: str = "") -> CodeContext:
        """What to show for an issue; `own_design` is the path of its own design."""
        access = self._access
        with CodeIndex(Path(access.index), access.snapshot) as index:
            return ContextBuilder(index, self._project, access.tokens, access.named).build(
                title, text, own_design
            )

    def check(self, draft: str, issue: str, *, with_form: bool = True) -> CheckResult:
        """Check a draft against the code."""
        with CodeIndex(Path(self._access.index), self._access.snapshot) as index:
            return check_draft(draft, issue, index, with_form=with_form)

    def changed_since(self, blobs: Mapping[str, str]) -> list[str]:
        """Of the files with these hashes, the paths of those that have changed or are gone."""
        with CodeIndex(Path(self._access.index), self._access.snapshot) as index:
            files = {path: index.file(path) for path in blobs}
        return [path for path, file in files.items() if file is None or file.blob != blobs[path]]

    def is_indexed(self) -> bool:
        """Whether the snapshot can be read yet."""
        try:
            with CodeIndex(Path(self._access.index), self._access.snapshot):
                return True
        except PreflightError:
            return False
