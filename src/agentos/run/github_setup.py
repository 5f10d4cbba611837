"""A project's issues when they are on GitHub: what a run needs of them before it begins."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from agentos.config.settings import Settings, environment
from agentos.core.errors import AgentosError, PreflightError
from agentos.core.planning.items import Item
from agentos.core.planning.worker_task import FiledIssue, GitHubAccess
from agentos.core.text.secrets import Secret
from agentos.outputs.console import COORDINATOR
from agentos.outputs.format import prefixed
from agentos.run.signals import StoppedMeanwhile
from agentos.workflows.lld import LldWorkflow
from agentos.workflows.plugin import Plugin
from agentos.workflows.registry import BUILT_IN

LOOK = 0.02
PROBE_ITEM = Item("ISSUE-0", "issue", 0, "", "")
T = TypeVar("T")


@dataclass(slots=True)
class GitHubIssues:
    """`texts` are those of the issues, by source; `filed` the addresses of filed ones, by marker."""

    access: GitHubAccess
    stopped: Callable[[], bool]
    say: Callable[[str], None]
    texts: dict[str, str] = field(default_factory=dict)
    filed: dict[str, str] = field(default_factory=dict)
    since: str = ""

    def workflow(self, workflow: Plugin) -> Plugin:
        """The same workflow, with its items from GitHub where those are issues."""
        if workflow.origin != BUILT_IN["lld"]:
            return workflow
        from agentos.workflows.github.issues import open_pages

        self._tell("Reading the open issues")
        pages = self._wait(open_pages(self._client(), self.access.repository))
        self.texts = {str(page.path): page.body for page in pages}
        return Plugin.of(workflow.origin, LldWorkflow(pages))

    def look_for_filed(self, workflow: Plugin) -> None:
        """Once for all items of the run: which of them have their issue already."""
        if workflow.origin == BUILT_IN["issue"]:
            from agentos.workflows.github.tracker import filed_before

            self._tell("Looking for issues that were filed before")
            self.filed, self.since = self._wait(filed_before(self._client()))

    def of(self, item: Item) -> FiledIssue | None:
        """Only a worker that files is told the place, and given the token."""
        if not self.since:
            return None
        from agentos.workflows.github.tracker import marker_of

        return FiledIssue(self.filed.get(marker_of(item), ""), self.since)

    def _tell(self, what: str) -> None:
        self.say(f"[COORDINATOR] {what} of {self.access.repository} on GitHub...")

    def _client(self) -> Any:
        from agentos.workflows.github.client import GitHub

        return GitHub(self.access, lambda text: self.say(prefixed(COORDINATOR, text)), random.random)

    def _wait(self, asking: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(_unless_stopped(asking, self.stopped))


def github_issues(
    settings: Settings,
    stopped: Callable[[], bool],
    say: Callable[[str], None],
    token: Secret | None = None,
) -> GitHubIssues | None:
    """None for a project that keeps its issues in its own folder; a token that is known is not looked for again."""
    if not settings.github:
        return None
    from agentos.workflows.github.token import github_token

    longest = min(settings.max_wait, settings.timeout / 2)
    found = token or github_token(settings.github, settings.github_url, environment())
    access = GitHubAccess(settings.github, settings.github_url, found, longest)
    return GitHubIssues(access, stopped, say)


@dataclass(frozen=True, slots=True)
class FilingCheck:
    """What keeps issues from being filed on GitHub, and what of that GitHub does not tell; empty for nothing."""

    problem: str = ""
    unverified: str = ""


def check_filing(settings: Settings) -> FilingCheck:
    from agentos.workflows.github.tracker import GitHubTracker

    try:
        # Whoever asks what is not ready wants to hear of a limit, not to wait for it.
        reached = github_issues(replace(settings, max_wait=0.0), lambda: False, lambda text: None)
        if reached:
            return FilingCheck(
                unverified=asyncio.run(GitHubTracker(reached._client(), PROBE_ITEM, "", "").check())
            )
    except AgentosError as error:
        return FilingCheck(problem=str(error))
    return FilingCheck()


def refuse_offline(settings: Settings) -> None:
    if settings.github:
        raise PreflightError(
            f'github = "{settings.github}" in agentos.toml needs the network, and --offline has none: '
            "leave one of them out"
        )


async def _unless_stopped(asking: Coroutine[Any, Any, T], stopped: Callable[[], bool]) -> T:
    """Signals only leave a mark: it is looked for while the network is slow."""
    task = asyncio.ensure_future(asking)
    while not task.done():
        await asyncio.wait({task}, timeout=LOOK)
        if stopped():
            task.cancel()
            raise StoppedMeanwhile
    return task.result()
