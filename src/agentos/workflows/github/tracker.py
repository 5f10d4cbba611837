"""Reads a repository's issues from GitHub, and files new ones exactly once."""

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from agentos.codebase.related import RelatedDocument, nearest, nearest_in
from agentos.core.errors import TrackerError
from agentos.core.planning.items import Item
from agentos.workflows.file_issue import Filing, labels_of, title_of, without_front_matter
from agentos.workflows.github.client import WRITE_ACCESS, GitHub, GitHubResponse, Json, ResponseLost
from agentos.workflows.markdown import Page, page_of

LOOKUP_DELAYS = (0.0, 1.0, 3.0)  # seconds before each search for an issue whose response was lost
MAX_ATTEMPTS = 3
LIST_LAG = timedelta(minutes=5)  # GitHub's list of issues may be this much out of date
CLASSIC_SCOPES = {"repo", "public_repo"}
_MARKER = re.compile(r"<!--\s*agentos-origin:.*?-->", re.DOTALL)


async def open_pages(github: GitHub, repository: str) -> list[Page]:
    """Every open issue. Pull requests, which GitHub lists as issues too, are left out."""
    found, _ = await github.list("/issues", state="open", sort="created", direction="asc")
    return [page for issue in found if (page := as_page(issue, repository))]


def as_page(issue: Json, repository: str) -> Page | None:
    number = issue.get("number")
    if type(number) is not int or number < 1 or "pull_request" in issue:
        return None
    title, body = str(issue.get("title") or ""), str(issue.get("body") or "")
    text = f"# {title}\n\n{body.replace(chr(13), '')}".rstrip() + "\n"
    page = page_of(Path(f"{repository}#{number}"), text)
    return replace(page, number=number, labels=_label_names(issue.get("labels")))


def marker_of(item: Item) -> str:
    """Identifies the issue filed for one brief. An HTML comment, so that readers do not see it."""
    name = hashlib.sha256(item.source.rpartition("/")[2].encode(errors="surrogateescape")).hexdigest()[:12]
    return f"<!-- agentos-origin: {item.id} {name} -->"


def marker_in(issue: Json) -> str:
    """The marker on an issue's last line, or an empty string. agentos writes it there and nowhere else."""
    last_line = str(issue.get("body") or "").rstrip().rpartition("\n")[2].strip()
    return last_line if _MARKER.fullmatch(last_line) else ""


@dataclass(frozen=True, slots=True)
class RepositoryIssues:
    """All issues of a repository, open and closed, as they were when a run started.

    filed: the address of each issue that agentos filed, by its marker.
    documents: every issue, to be compared with new ones.
    since: the time from which to look for later ones.
    """

    filed: dict[str, str]
    documents: list[RelatedDocument]
    since: str


async def read_issues(github: GitHub, repository: str) -> RepositoryIssues:
    found, date = await github.list("/issues", state="all", sort="created", direction="asc")
    filed = {marker: _address(issue) for issue in found if (marker := marker_in(issue))}
    return RepositoryIssues(filed, as_documents(found, repository), since_of(date))


def as_documents(issues: list[Json], repository: str) -> list[RelatedDocument]:
    """The issues among these; pull requests are left out."""
    found = []
    for issue in issues:
        if page := as_page(issue, repository):
            title = " ".join(str(issue.get("title") or "").split())
            closed = " (closed)" if issue.get("state") == "closed" else ""
            found.append(RelatedDocument(str(page.path), f"{title}{closed}", _MARKER.sub("", page.body)))
    return found


def since_of(date: str) -> str:
    """The server's time less the possible lag of its lists, in the format of the `since` parameter."""
    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, TypeError):
        moment = datetime.fromtimestamp(0, UTC)
    return (moment - LIST_LAG).strftime("%Y-%m-%dT%H:%M:%SZ")


class GitHubTracker:
    """Files the issue of one item, and finds those that are like it.

    `filed` is the address of the item's issue if it existed before the run. `index` has the issues that were read then,
    `since` is when; an empty index stands for none.
    """

    def __init__(self, github: GitHub, item: Item, filed: str, since: str, index: str = "") -> None:
        self._github = github
        self._marker = marker_of(item)
        self._filed = filed
        self._since = since
        self._index = index
        self._recent: list[RelatedDocument] = []

    async def check(self) -> str:
        """Raises if filing is bound to fail, before any model call is paid for; returns what GitHub does not say."""
        response = await self._github.get("")
        repository = response.body if isinstance(response.body, dict) else {}
        name = repository.get("full_name", "the repository")
        if repository.get("archived"):
            raise TrackerError(f"cannot file: {name} is archived")
        if repository.get("has_issues") is False:
            raise TrackerError(f"cannot file: issues are disabled on {name}")
        scopes = {scope.strip() for scope in (response.scopes or "").split(",")}
        if response.scopes and not scopes & CLASSIC_SCOPES:
            raise TrackerError(
                f"cannot file: the token has the scopes {response.scopes}; filing on {name} needs repo or public_repo"
            )
        return "; ".join(_unverifiable(response, repository))

    async def refresh(self) -> None:
        """Read the issues that were filed or changed since the run started, such as those of its other items."""
        found, _ = await self._github.list("/issues", state="all", since=self._since)
        others = [issue for issue in found if marker_in(issue) != self._marker]
        self._recent = as_documents(others, self._github.repository)

    def related(self, text: str, count: int) -> list[RelatedDocument]:
        """The issues nearest to the text, best first, without the item's own."""
        if self._filed:  # it would be found as its own duplicate, and nothing is filed any more
            return []
        recent = {document.path for document in self._recent}
        stored = nearest_in(Path(self._index), text, count + len(recent)) if self._index else []
        found = [document for document in stored if document.path not in recent]
        found += nearest(self._recent, text, count)
        return sorted(found, key=lambda document: -document.similarity)[:count]

    async def file(self, filing: Filing, say: Callable[[str], None]) -> str:
        """Searches before filing, and again whenever a response was lost."""
        lost = None
        for _ in range(MAX_ATTEMPTS):
            if found := self._filed or await self._find(LOOKUP_DELAYS if lost else LOOKUP_DELAYS[:1]):
                return found
            try:
                return _address(await self._github.post("/issues", self._issue(filing)))
            except ResponseLost as error:
                lost = error
                say(f"The response from GitHub was lost ({error}). Checking whether the issue was filed...")
        raise TrackerError(f"no response from GitHub: {lost}; no work is lost", retryable=True)

    async def _find(self, delays: tuple[float, ...]) -> str:
        """Reads the list of issues, because GitHub's search index lags further behind than the list."""
        for delay in delays:
            await asyncio.sleep(delay)
            found, _ = await self._github.list("/issues", state="all", since=self._since)
            for issue in found:
                if marker_in(issue) == self._marker:
                    return _address(issue)
        return ""

    def _issue(self, filing: Filing) -> Json:
        body = _MARKER.sub("", without_front_matter(filing.body)).strip("\n")
        return {
            "title": title_of(body, filing.slug)[:250],
            "body": f"{body}\n\n{self._marker}",
            "labels": labels_of(filing),
        }


def _unverifiable(response: GitHubResponse, repository: Json) -> Iterator[str]:
    if response.scopes is None:
        yield f"GitHub reveals only on filing whether this token may write: {WRITE_ACCESS}"
    permissions = repository.get("permissions")
    if isinstance(permissions, dict) and not (permissions.get("push") or permissions.get("triage")):
        yield "labels may be dropped: they need push or triage permission"


def _address(issue: Json) -> str:
    return str(issue.get("html_url") or f"#{issue.get('number')}")


def _label_names(value: Any) -> tuple[str, ...]:
    entries = value if isinstance(value, list) else []
    names = [entry.get("name") if isinstance(entry, dict) else entry for entry in entries]
    return tuple(name for name in names if isinstance(name, str))
