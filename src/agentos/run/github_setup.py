"""GitHub before a run: reads the open issues, and which issues were already filed."""

import asyncio
import random
import sqlite3
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agentos.codebase.related import write_document_index
from agentos.config.settings import Settings, environment
from agentos.core.errors import AgentosError, PreflightError
from agentos.core.planning.items import Item
from agentos.core.planning.worker_task import FiledIssue, GitHubAccess
from agentos.core.text.secrets import Secret
from agentos.outputs.console import COORDINATOR
from agentos.outputs.format import prefixed
from agentos.run.signals import StoppedBeforeStart
from agentos.storage.files import private_folder
from agentos.workflows.plugin import Plugin

if TYPE_CHECKING:
    from agentos.workflows.github.client import GitHub

STOP_POLL_INTERVAL = 0.02  # seconds
PROBE_ITEM = Item("ISSUE-0", "issue", 0, "", "")
T = TypeVar("T")


@dataclass(slots=True)
class GitHubIssues:
    """The issues of a project that keeps them on GitHub.

    texts: the body of each open issue, by the item's source.
    filed: the address of each issue that an earlier run filed, by its marker.
    since: when the search for filed issues began; empty if there was none.
    index: the file with every issue, for finding duplicates; empty if none was written.
    """

    access: GitHubAccess
    is_stopped: Callable[[], bool]
    echo: Callable[[str], None]
    texts: dict[str, str] = field(default_factory=dict)
    filed: dict[str, str] = field(default_factory=dict)
    since: str = ""
    index: str = ""

    def workflow(self, workflow: Plugin) -> Plugin:
        """The workflow itself, or one that takes its items from the open issues if it reads them."""
        if not workflow.reads_issues:
            return workflow
        from agentos.workflows.github.tracker import open_pages

        self._announce("Reading the open issues")
        pages = self._wait(open_pages(self.client(), self.access.repository))
        self.texts = {str(page.path): page.body for page in pages}
        return workflow.with_issues(pages)

    def read_issues(self, workflow: Plugin, index: Path) -> None:
        """Read every issue once for all items, to know which ones earlier runs filed and to find duplicates.

        The texts are written to the file `index`, where the workers search them.
        """
        if not workflow.files_issues:
            return
        from agentos.workflows.github.tracker import read_issues

        self._announce("Reading the issues")
        found = self._wait(read_issues(self.client(), self.access.repository))
        private_folder(index.parent)
        try:
            write_document_index(index, found.documents, self._check_stopped)
        except (OSError, sqlite3.Error) as error:
            raise PreflightError(
                f"cannot write {index} ({error}): free space in the home, or set AGENTOS_HOME to another folder"
            ) from error
        self.filed, self.since, self.index = found.filed, found.since, str(index)

    def filed_issue(self, item: Item) -> FiledIssue | None:
        """What the worker needs to file the item; None unless the workflow files issues, as only then it gets the token."""
        if not self.since:
            return None
        from agentos.workflows.github.tracker import marker_of

        return FiledIssue(self.filed.get(marker_of(item), ""), self.since, self.index)

    def client(self) -> "GitHub":
        from agentos.workflows.github.client import GitHub

        return GitHub(self.access, lambda text: self.echo(prefixed(COORDINATOR, text)), random.random)

    def _announce(self, action: str) -> None:
        self.echo(f"[COORDINATOR] {action} of {self.access.repository} on GitHub...")

    def _check_stopped(self) -> None:
        if self.is_stopped():
            raise StoppedBeforeStart

    def _wait(self, request: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(_unless_stopped(request, self.is_stopped))


def connect_github(
    settings: Settings,
    is_stopped: Callable[[], bool],
    echo: Callable[[str], None],
    token: Secret | None = None,
) -> GitHubIssues | None:
    """Set up GitHub; None if the project keeps its issues in its own folder. Looks up the token unless it is given."""
    if not settings.github:
        return None
    from agentos.run.prestart import github_token

    max_wait = min(settings.max_wait, settings.timeout / 2)
    token = token or github_token(settings.github, settings.github_url, environment())
    return GitHubIssues(GitHubAccess(settings.github, settings.github_url, token, max_wait), is_stopped, echo)


@dataclass(frozen=True, slots=True)
class FilingCheck:
    """Why issues cannot be filed on GitHub, and what GitHub does not let us verify; either may be empty."""

    problem: str = ""
    unverified: str = ""


def refuse_untrusted(settings: Settings, workflow: Plugin) -> None:
    """Raise if the project's file names a repository but is not trusted to: without it, the workflow would use other issues."""
    if "github" not in settings.held_back:
        return
    has_folder = any((settings.project / folder).is_dir() for folder in workflow.folders)
    if workflow.files_issues or (workflow.reads_issues and not has_folder):
        raise PreflightError(
            "this project keeps its issues on GitHub, and your token is not used for a project that you have not "
            "trusted: read its agentos.toml, then type agentos trust (or add --trust for this run alone)"
        )


def check_filing(settings: Settings) -> FilingCheck:
    """Check that issues can be filed, without filing one."""
    from agentos.workflows.github.tracker import GitHubTracker

    try:
        # A check reports a rate limit instead of waiting for it.
        github = connect_github(replace(settings, max_wait=0.0), lambda: False, lambda text: None)
        if github:
            tracker = GitHubTracker(github.client(), PROBE_ITEM, "", "")
            return FilingCheck(unverified=asyncio.run(tracker.check()))
    except AgentosError as error:
        return FilingCheck(problem=str(error))
    return FilingCheck()


def refuse_offline(settings: Settings) -> None:
    if settings.github:
        raise PreflightError(
            f'github = "{settings.github}" in agentos.toml needs the network, but --offline has none: '
            "remove one of the two"
        )


async def _unless_stopped(request: Coroutine[Any, Any, T], is_stopped: Callable[[], bool]) -> T:
    """Await the request, but poll for a stop signal, because signal handlers only record signals."""
    task = asyncio.ensure_future(request)
    while not task.done():
        await asyncio.wait({task}, timeout=STOP_POLL_INTERVAL)
        if is_stopped():
            task.cancel()
            raise StoppedBeforeStart
    return task.result()
