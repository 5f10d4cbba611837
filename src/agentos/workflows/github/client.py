"""Client for GitHub's REST API: waits for rate limits, retries lost responses, reads every page."""

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from agentos.core.backoff import backoff
from agentos.core.errors import LimitReached, TrackerError
from agentos.core.planning.worker_task import GitHubAccess
from agentos.core.text.line_assembler import one_line

if TYPE_CHECKING:
    import httpx

REQUEST_TIMEOUT = 20.0  # seconds
MAX_ATTEMPTS = 5
MAX_REDIRECTS = 3
REDIRECTS = (301, 302, 307, 308)
PER_PAGE = 100  # the most that GitHub allows
DEFAULT_LIMIT_WAIT = 60.0  # seconds, when a refusal does not say how long
MIN_LIMIT_WAIT = 1.0  # seconds
_MAX_DIGITS = 12  # of a plausible time or duration
WRITE_ACCESS = 'a fine-grained token needs the repository permission "Issues: Read and write", a classic one the scope repo'
Json = dict[str, Any]


class ResponseLost(Exception):
    """A request was sent and may have taken effect, but no usable response arrived."""


@dataclass(frozen=True, slots=True)
class GitHubResponse:
    """A decoded response. `next` is the next page's address; `scopes` is None for a fine-grained token."""

    body: Any
    next: str
    date: str
    scopes: str | None


class GitHub:
    """Access to one repository. `say` reports what the client is waiting for."""

    def __init__(self, access: GitHubAccess, say: Callable[[str], None], jitter: Callable[[], float]) -> None:
        self._access = access
        self._say = say
        self._jitter = jitter
        self._tls: ssl.SSLContext | None = None

    @property
    def repository(self) -> str:
        return self._access.repository

    async def get(self, path: str, **params: str) -> GitHubResponse:
        """Retries with backoff while no response arrives."""
        for attempt in range(1, MAX_ATTEMPTS):
            try:
                return await self._request("GET", self._url(path), params, None)
            except ResponseLost as lost:
                seconds = backoff(attempt, self._jitter)
                self._say(f"No response from GitHub ({lost}). Retrying in {seconds:.0f}s")
                await asyncio.sleep(seconds)
        try:
            return await self._request("GET", self._url(path), params, None)
        except ResponseLost as lost:
            raise TrackerError(f"no response from GitHub: {lost}; try again later", retryable=True) from lost

    async def list(self, path: str, **params: str) -> tuple[list[Json], str]:
        """The objects of every page, and the server's time at the first page."""
        response = await self.get(path, per_page=str(PER_PAGE), **params)
        date, found = response.date, list(_objects(response.body))
        while response.next:
            response = await self.get(response.next)
            found.extend(_objects(response.body))
        return found, date

    async def post(self, path: str, body: Json) -> Json:
        """Sends once, without retries; raises ResponseLost if the request may have arrived."""
        response = await self._request("POST", self._url(path), {}, body)
        if not isinstance(response.body, dict):
            raise ResponseLost("the response is not an object")
        return response.body

    def _url(self, path: str) -> str:
        root = self._access.base_url.rstrip("/")
        return path if path.startswith(root) else f"{root}/repos/{self._access.repository}{path}"

    async def _request(
        self, method: str, url: str, params: dict[str, str], body: Json | None
    ) -> GitHubResponse:
        waited = 0.0
        while True:
            response = await self._send(method, url, params, body)
            seconds = rate_limit_wait(response.status_code, response.headers, _body(response))
            if seconds is None:
                return self._read(response)
            waited += seconds
            await self._wait(seconds, waited)

    async def _wait(self, seconds: float, waited: float) -> None:
        until = datetime.fromtimestamp(datetime.now().timestamp() + seconds).strftime("%H:%M:%S")
        limited = f"GitHub's rate limit is used up until {until}"
        if waited > self._access.max_wait:
            raise LimitReached(f"{limited}, longer than --max-wait allows")
        self._say(f"{limited}. Waiting {seconds:.0f}s, then continuing with {self._access.repository}...")
        await asyncio.sleep(seconds)

    async def _send(
        self, method: str, url: str, params: dict[str, str], body: Json | None
    ) -> "httpx.Response":
        """Follows redirects with the same method, and only on the same host: the token is sent nowhere else."""
        import httpx

        headers = {
            "Authorization": f"Bearer {self._access.token.reveal()}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
            "User-Agent": "agentos",
        }
        if self._tls is None:
            self._tls = httpx.create_ssl_context()
            # The system's certificates, and those in SSL_CERT_FILE and SSL_CERT_DIR.
            self._tls.load_default_certs()
        async with httpx.AsyncClient(timeout=REQUEST_TIMEOUT, trust_env=False, verify=self._tls) as client:
            for _ in range(MAX_REDIRECTS):
                try:
                    response = await client.request(
                        method, url, params=params or None, json=body, headers=headers
                    )
                except httpx.HTTPError as error:
                    if problem := _tls_problem(error):
                        raise TrackerError(f"cannot trust {urlsplit(url).netloc}: {problem}") from error
                    raise ResponseLost(type(error).__name__) from error
                if response.status_code not in REDIRECTS:
                    return response
                target = urljoin(url, response.headers.get("location", ""))
                if urlsplit(target)[:2] != urlsplit(url)[:2]:
                    raise TrackerError(
                        f"GitHub redirects to another host, {urlsplit(target).netloc}: not followed"
                    )
                url, params = target, {}
        raise TrackerError(f"too many redirects from GitHub for {self._access.repository}")

    def _read(self, response: "httpx.Response") -> GitHubResponse:
        if response.status_code >= 500:
            raise ResponseLost(f"status {response.status_code}")
        body, headers = _body(response), response.headers
        if response.status_code >= 400:
            permissions = headers.get("x-accepted-github-permissions", "")
            raise TrackerError(self._error_text(response.status_code, body, permissions))
        if body is None:
            raise ResponseLost("the response is not JSON")
        next_page = response.links.get("next", {}).get("url", "")
        return GitHubResponse(body, next_page, headers.get("date", ""), headers.get("x-oauth-scopes"))

    def _error_text(self, status: int, body: Any, permissions: str) -> str:
        repository = self._access.repository
        message = str(body.get("message", ""))[:200] if isinstance(body, dict) else ""
        texts = {
            401: "GitHub rejects the token: set GITHUB_TOKEN to a valid one, or run: gh auth login",
            403: f"the token lacks permission on {repository} ({message}): it needs read and write access to issues. "
            + WRITE_ACCESS
            + (f"; GitHub asks for {one_line(permissions)[:100]}" if permissions else ""),
            404: f"{repository} does not exist, or the token has no access to it: "
            "check github in agentos.toml, and the token",
            410: f"issues are disabled on {repository}: enable them in its settings",
        }
        return texts.get(status, f"GitHub refused the request ({status}): {message}")


def rate_limit_wait(status: int, headers: Mapping[str, str], body: Any) -> float | None:
    """Seconds until the next request may be sent; None if the response is not about a rate limit."""
    if status not in (403, 429):
        return None
    if (retry_after := _seconds(headers.get("retry-after"))) is not None:
        return max(MIN_LIMIT_WAIT, retry_after)
    if headers.get("x-ratelimit-remaining") == "0":
        return _until_reset(headers)
    documentation = str(body.get("documentation_url", "")) if isinstance(body, dict) else ""
    return DEFAULT_LIMIT_WAIT if status == 429 or "secondary-rate-limits" in documentation else None


def _tls_problem(error: BaseException | None) -> str:
    """Why the TLS handshake failed, if it did: waiting does not help, and nothing was sent."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return (
                f"its certificate is not accepted ({error.verify_message}). Behind a proxy or on a server of your "
                "own, set SSL_CERT_FILE to the certificate of its CA; otherwise check the clock and the address"
            )
        if isinstance(error, ssl.SSLError):
            return f"TLS failed ({error.reason or error}). Check GITHUB_API_URL and the proxy"
        error = error.__cause__ or error.__context__
    return ""


def _until_reset(headers: Mapping[str, str]) -> float:
    """Measured by the server's clock, because the local one may be wrong."""
    reset = _seconds(headers.get("x-ratelimit-reset"))
    try:
        now = parsedate_to_datetime(headers.get("date", "")).timestamp()
    except (ValueError, TypeError, OverflowError):
        return DEFAULT_LIMIT_WAIT
    return DEFAULT_LIMIT_WAIT if reset is None else max(MIN_LIMIT_WAIT, reset - now + MIN_LIMIT_WAIT)


def _seconds(text: str | None) -> float | None:
    """A Unix time or a duration in seconds; None for anything implausible."""
    return float(text) if text and text.isascii() and text.isdigit() and len(text) < _MAX_DIGITS else None


def _body(response: "httpx.Response") -> Any:
    try:
        return json.loads(response.content)
    except (ValueError, RecursionError):
        return None


def _objects(body: Any) -> list[Json]:
    if not isinstance(body, list):
        raise TrackerError("unexpected response from GitHub: expected a list")
    return [entry for entry in body if isinstance(entry, dict)]
