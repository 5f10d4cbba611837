"""Filing an issue on GitHub, exactly once."""

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from agentos.core.errors import TrackerError
from agentos.core.planning.items import Item
from agentos.workflows.file_issue import Filing, labels_of, title_of, without_front
from agentos.workflows.github.client import WRITE, GitHub, GitHubResponse, Json, ResponseLost

LOOKS = (0.0, 1.0, 3.0)
TRIES = 3
SKEW = timedelta(minutes=5)
CLASSIC = {"repo", "public_repo"}
_MARKER = re.compile(r"<!--\s*agentos-origin:.*?-->", re.DOTALL)


def marker_of(item: Item) -> str:
    """What tells the issue of one brief from all others; invisible where people read it."""
    name = hashlib.sha256(item.source.rpartition("/")[2].encode(errors="surrogateescape")).hexdigest()[:12]
    return f"<!-- agentos-origin: {item.id} {name} -->"


def marker_in(issue: Json) -> str:
    """The marker at the very end of an issue; one that stands elsewhere was written by somebody else."""
    last = str(issue.get("body") or "").rstrip().rpartition("\n")[2].strip()
    return last if _MARKER.fullmatch(last) else ""


async def filed_before(github: GitHub) -> tuple[dict[str, str], str]:
    """The address of every issue with a marker, and from when on others have to be looked for."""
    found, date = await github.list("/issues", state="all", sort="created", direction="asc")
    return {mark: _address(issue) for issue in found if (mark := marker_in(issue))}, since_of(date)


def since_of(date: str) -> str:
    """A while before the server's time, in the form that it takes; its copies of the list may lag."""
    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, TypeError):
        moment = datetime.fromtimestamp(0, UTC)
    return (moment - SKEW).strftime("%Y-%m-%dT%H:%M:%SZ")


class GitHubTracker:
    """Where one item's issue is filed; `filed` is where it was found before the run."""

    def __init__(self, github: GitHub, item: Item, filed: str, since: str) -> None:
        self._github = github
        self._marker = marker_of(item)
        self._filed = filed
        self._since = since

    async def check(self) -> str:
        """Before anything is paid for: can an issue be filed here? Gives what GitHub does not tell of that."""
        answer = await self._github.get("")
        found = answer.body if isinstance(answer.body, dict) else {}
        name = found.get("full_name", "the repository")
        if found.get("archived"):
            raise TrackerError(f"cannot file: {name} is archived")
        if found.get("has_issues") is False:
            raise TrackerError(f"cannot file: issues are switched off on {name}")
        scopes = {scope.strip() for scope in (answer.scopes or "").split(",")}
        if answer.scopes and not scopes & CLASSIC:
            raise TrackerError(
                f"cannot file: the token has the scopes {answer.scopes}, filing on {name} needs repo or public_repo"
            )
        return "; ".join(_untold(answer, found))

    async def file(self, filing: Filing, say: Callable[[str], None]) -> str:
        """Looks before it files, and again whenever an answer was lost."""
        lost = None
        for _ in range(TRIES):
            if found := self._filed or await self._look(LOOKS if lost else LOOKS[:1]):
                return found
            try:
                return _address(await self._github.post("/issues", self._request(filing)))
            except ResponseLost as error:
                lost = error
                say(f"GitHub's answer was lost ({error}). Looking whether the issue is there...")
        raise TrackerError(f"GitHub does not answer: {lost}; nothing is lost", retryable=True)

    async def _look(self, pauses: tuple[float, ...]) -> str:
        """Through the list and not by a search, whose index lags; more than once when it may lag too."""
        for pause in pauses:
            await asyncio.sleep(pause)
            found, _ = await self._github.list("/issues", state="all", since=self._since)
            for issue in found:
                if marker_in(issue) == self._marker:
                    return _address(issue)
        return ""

    def _request(self, filing: Filing) -> Json:
        body = _MARKER.sub("", without_front(filing.body)).strip("\n")
        return {
            "title": title_of(body, filing.slug)[:250],
            "body": f"{body}\n\n{self._marker}",
            "labels": labels_of(filing),
        }


def _untold(answer: GitHubResponse, repository: Json) -> Iterator[str]:
    if answer.scopes is None:
        yield f"GitHub tells only at filing whether this token may write: {WRITE}"
    rights = repository.get("permissions")
    if isinstance(rights, dict) and not (rights.get("push") or rights.get("triage")):
        yield "labels may be left out: they need the right to push or to triage"


def _address(issue: Json) -> str:
    return str(issue.get("html_url") or f"#{issue.get('number')}")
