"""Requests to GitHub's REST API that wait for its limits and outlast its troubles."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from agentos.core.backoff import backoff
from agentos.core.errors import LimitReached, TrackerError
from agentos.core.planning.worker_task import GitHubAccess
from agentos.core.text.line_assembler import one_line
from agentos.workflows.github.limits import limit_seconds

if TYPE_CHECKING:
    import httpx

TIMEOUT = 20.0
TRIES = 5
MOST_REDIRECTS = 3
MOVED = (301, 302, 307, 308)
PER_PAGE = 100
WRITE = 'a fine-grained token needs the repository permission "Issues: Read and write", a classic one the scope repo'
Json = dict[str, Any]


class ResponseLost(Exception):
    """Something was sent that may have had its effect; nobody has said so."""


@dataclass(frozen=True, slots=True)
class GitHubResponse:
    body: Any
    next: str
    date: str
    scopes: str | None


class GitHub:
    """One repository; `say` tells a person what is waited for."""

    def __init__(self, access: GitHubAccess, say: Callable[[str], None], jitter: Callable[[], float]) -> None:
        self._access = access
        self._say = say
        self._jitter = jitter

    async def get(self, path: str, **params: str) -> GitHubResponse:
        """Tried again while the trouble can pass."""
        for attempt in range(1, TRIES):
            try:
                return await self._ask("GET", self._url(path), params, None)
            except ResponseLost as lost:
                seconds = backoff(attempt, self._jitter)
                self._say(f"GitHub did not answer ({lost}). Asking again in {seconds:.0f}s")
                await asyncio.sleep(seconds)
        try:
            return await self._ask("GET", self._url(path), params, None)
        except ResponseLost as lost:
            raise TrackerError(f"GitHub does not answer: {lost}; try again later", retryable=True) from lost

    async def list(self, path: str, **params: str) -> tuple[list[Json], str]:
        """Every page, and the server's time at the first."""
        answer = await self.get(path, per_page=str(PER_PAGE), **params)
        date, found = answer.date, list(_objects(answer.body))
        while answer.next:
            answer = await self.get(answer.next)
            found.extend(_objects(answer.body))
        return found, date

    async def post(self, path: str, body: Json) -> Json:
        """Sent once; raises ResponseLost when it may have arrived."""
        answer = await self._ask("POST", self._url(path), {}, body)
        if not isinstance(answer.body, dict):
            raise ResponseLost("an answer that is no object")
        return answer.body

    def _url(self, path: str) -> str:
        root = self._access.base_url.rstrip("/")
        return path if path.startswith(root) else f"{root}/repos/{self._access.repository}{path}"

    async def _ask(self, method: str, url: str, params: dict[str, str], body: Json | None) -> GitHubResponse:
        waited = 0.0
        while True:
            response = await self._send(method, url, params, body)
            seconds = limit_seconds(response.status_code, response.headers, _body(response))
            if seconds is None:
                return self._read(response)
            waited += seconds
            await self._wait(seconds, waited)

    async def _wait(self, seconds: float, waited: float) -> None:
        until = datetime.fromtimestamp(datetime.now().timestamp() + seconds).strftime("%H:%M:%S")
        why = f"GitHub's rate limit is used up until {until}"
        if waited > self._access.max_wait:
            raise LimitReached(f"{why}, which is longer than may be waited (--max-wait)")
        self._say(f"{why}. Waiting {seconds:.0f}s for it, to go on with {self._access.repository}...")
        await asyncio.sleep(seconds)

    async def _send(
        self, method: str, url: str, params: dict[str, str], body: Json | None
    ) -> "httpx.Response":
        """Redirects are followed as they were asked, and only on the same host: the token goes nowhere else."""
        import httpx

        headers = {
            "Authorization": f"Bearer {self._access.token.reveal()}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
            "User-Agent": "agentos",
        }
        async with httpx.AsyncClient(timeout=TIMEOUT, trust_env=False) as client:
            for _ in range(MOST_REDIRECTS):
                try:
                    response = await client.request(
                        method, url, params=params or None, json=body, headers=headers
                    )
                except httpx.HTTPError as error:
                    raise ResponseLost(type(error).__name__) from error
                if response.status_code not in MOVED:
                    return response
                target = urljoin(url, response.headers.get("location", ""))
                if urlsplit(target)[:2] != urlsplit(url)[:2]:
                    raise TrackerError(
                        f"GitHub sends us to another host, {urlsplit(target).netloc}: not followed"
                    )
                url, params = target, {}
        raise TrackerError(f"GitHub sends us on and on for {self._access.repository}")

    def _read(self, response: "httpx.Response") -> GitHubResponse:
        if response.status_code >= 500:
            raise ResponseLost(f"status {response.status_code}")
        body = _body(response)
        if response.status_code >= 400:
            wanted = response.headers.get("x-accepted-github-permissions", "")
            raise TrackerError(self._complaint(response.status_code, body, wanted))
        if body is None:
            raise ResponseLost("an answer that is no JSON")
        links = response.links.get("next", {}).get("url", "")
        headers = response.headers
        return GitHubResponse(body, links, headers.get("date", ""), headers.get("x-oauth-scopes"))

    def _complaint(self, status: int, body: Any, wanted: str) -> str:
        where = self._access.repository
        said = str(body.get("message", ""))[:200] if isinstance(body, dict) else ""
        words = {
            401: "GitHub rejects the token: set GITHUB_TOKEN to a valid one, or type gh auth login",
            403: f"the token may not do this on {where} ({said}): it needs read and write access to issues. {WRITE}"
            + (f"; GitHub asks for {one_line(wanted)[:100]}" if wanted else ""),
            404: f"{where} is not there, or the token may not see it: check github in agentos.toml, and the token",
            410: f"issues are switched off on {where}: switch them on in its settings",
        }
        return words.get(status, f"GitHub refuses ({status}): {said}")


def _body(response: "httpx.Response") -> Any:
    try:
        return json.loads(response.content)
    except (ValueError, RecursionError):
        return None


def _objects(body: Any) -> list[Json]:
    if not isinstance(body, list):
        raise TrackerError("GitHub answered with something else than a list")
    return [entry for entry in body if isinstance(entry, dict)]
