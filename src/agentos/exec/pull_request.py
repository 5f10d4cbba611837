"""Opens a pull request for an item's branch on GitHub, at most one per branch."""

import asyncio
import random
import re
from collections.abc import Callable

from agentos.config.settings import Settings, environment
from agentos.core.errors import PreflightError
from agentos.core.planning.worker_task import GitHubAccess
from agentos.exec.worktrees import PushedBranch
from agentos.run.prestart import github_token
from agentos.workflows.github.client import GitHub

_REMOTE = re.compile(r"github\.com[:/]([\w.-]+/[\w.-]+?)(?:\.git)?/?$")


def open_pull_request(settings: Settings, pushed: PushedBranch, say: Callable[[str], None]) -> str:
    """The address of the branch's pull request; an open one is found instead of opened again."""
    found = _REMOTE.search(pushed.remote)
    repository = settings.github or (found[1] if found else "")
    if not repository:
        raise PreflightError(
            f'origin ({pushed.remote}) is not on GitHub; the branch is pushed. Set github = "owner/repository" in '
            "agentos.toml, or open the pull request by hand"
        )
    token = github_token(repository, settings.github_url, environment())
    access = GitHubAccess(repository, settings.github_url, token, settings.max_wait)
    return asyncio.run(_open(GitHub(access, say, random.random), repository, pushed))


async def _open(github: GitHub, repository: str, pushed: PushedBranch) -> str:
    owner = repository.partition("/")[0]
    existing, _ = await github.list("/pulls", state="open", head=f"{owner}:{pushed.branch}")
    # GitHub ignores a filter that it cannot read, so compare here as well.
    matching = [pull for pull in existing if (pull.get("head") or {}).get("ref") == pushed.branch]
    if not matching:
        body = {"title": pushed.subject, "head": pushed.branch, "base": pushed.base, "body": ""}
        matching = [await github.post("/pulls", body)]
    return str(matching[0].get("html_url") or "")
