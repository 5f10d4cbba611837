"""HTTP client of the gateway: sends a request to its provider with the leased key, and redacts the key in the response."""

import asyncio
import contextlib
import os
import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpcore2

from agentos.core.quota.credentials import Credential
from agentos.core.text.secrets import encoded_forms
from agentos.gateway.request_parser import ProxyRequest, forwarded_headers
from agentos.http.connection import Headers
from agentos.models.client_base import connection_problem

CONNECT_TIMEOUT = 15.0  # seconds
IDLE_TIMEOUT = 900.0  # seconds; a model may think for minutes before its first token
KEEPALIVE = 60.0  # seconds
BUNDLE_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
TIMEOUTS = {"connect": CONNECT_TIMEOUT, "read": IDLE_TIMEOUT, "write": IDLE_TIMEOUT, "pool": None}


class NoResponse(Exception):
    """The provider could not be reached, or the connection broke."""


@dataclass(frozen=True, slots=True)
class UpstreamResponse:
    """A response whose body is still arriving, chunk by chunk."""

    status: int
    headers: Headers
    body: AsyncIterator[bytes]
    base_url: str

    @property
    def header_map(self) -> Mapping[str, str]:
        return dict(self.headers)


class Upstream:
    """Sends requests, keeping connections to the providers open between calls.

    Honours HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY in `environment`.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._idle: dict[str, deque[_IdlePool]] = {}
        self._tls_context: ssl.SSLContext | None = None

    @asynccontextmanager
    async def send(self, request: ProxyRequest, credential: Credential) -> AsyncIterator[UpstreamResponse]:
        """Leaving the context ends the call, even if the response is incomplete."""
        base = urlsplit(request.dialect.base(credential.base_url or request.dialect.home))
        host = base.hostname or ""
        path = f"{base.path.rstrip('/')}{request.path}"
        target = f"{path}?{request.query}" if request.query else path
        url = httpcore2.URL(
            scheme=base.scheme.encode(), host=host.encode(), port=base.port, target=target.encode("latin-1")
        )
        try:
            async with (
                self._pool(base.scheme, host) as pool,
                pool.stream(
                    request.method,
                    url,
                    headers=_request_headers(request, credential, base.netloc.rpartition("@")[2]),
                    content=request.body or None,
                    extensions={"timeout": TIMEOUTS},
                ) as response,
            ):
                yield UpstreamResponse(
                    response.status,
                    _response_headers(response.headers),
                    _chunks(response),
                    base.geturl().rstrip("/"),
                )
        except (
            httpcore2.NetworkError,
            httpcore2.TimeoutException,
            httpcore2.ProtocolError,
            httpcore2.ProxyError,
            httpcore2.UnsupportedProtocol,
            OSError,
        ) as error:
            problem = connection_problem(error, base.netloc.rpartition("@")[2])
            missing = _missing_bundles(self._environment) if base.scheme == "https" else ()
            raise NoResponse("; ".join((problem, *missing))) from error

    async def close(self) -> None:
        for idle in self._idle.values():
            for entry in idle:
                await entry.pool.aclose()

    @asynccontextmanager
    async def _pool(self, scheme: str, host: str) -> AsyncIterator[httpcore2.AsyncConnectionPool]:
        """Yield the idle pool that was used last, or a new one.

        Each pool has one connection, because a pool checks all its connections for every call, so that many concurrent
        calls would slow each other down.
        """
        proxy = proxy_for(scheme, host, self._environment)
        idle = self._idle.setdefault(f"{scheme} {host} {proxy}", deque())
        pool = idle.pop().pool if idle else self._new_pool(scheme, proxy)
        try:
            yield pool
        finally:
            now = asyncio.get_running_loop().time()
            idle.append(_IdlePool(pool, now))
            expired = [idle.popleft() for _ in range(len(idle)) if idle[0].since < now - KEEPALIVE]
            for entry in expired:
                await entry.pool.aclose()

    def _new_pool(self, scheme: str, proxy: str) -> httpcore2.AsyncConnectionPool:
        if scheme == "https" and self._tls_context is None:
            # Loaded once: this takes longer than everything else the gateway does for a call.
            self._tls_context = _trust_store(self._environment)
        return httpcore2.AsyncConnectionPool(
            ssl_context=self._tls_context if scheme == "https" else None,
            proxy=httpcore2.Proxy(proxy) if proxy else None,
            max_connections=1,
            keepalive_expiry=KEEPALIVE,
        )


@dataclass(frozen=True, slots=True)
class _IdlePool:
    """A pool that no call has used since this time of the event loop's clock."""

    pool: httpcore2.AsyncConnectionPool
    since: float


def proxy_for(scheme: str, host: str, environment: Mapping[str, str]) -> str:
    """The proxy that the environment configures for a host; empty if none."""
    variables = {name.lower(): value for name, value in environment.items()}
    exceptions = [name.strip().lstrip(".") for name in variables.get("no_proxy", "").split(",")]
    if host in LOCAL_HOSTS or any(host == name or host.endswith(f".{name}") for name in exceptions if name):
        return ""
    return variables.get(f"{scheme}_proxy") or variables.get("all_proxy") or ""


def _trust_store(environment: Mapping[str, str]) -> ssl.SSLContext:
    """The system's certificates, and those that the usual variables name."""
    context = ssl.create_default_context()  # reads SSL_CERT_FILE and SSL_CERT_DIR itself
    for name in BUNDLE_VARIABLES:
        path = environment.get(name, "")
        with contextlib.suppress(OSError):
            if os.path.isdir(path):
                context.load_verify_locations(capath=path)
            elif os.path.isfile(path):
                context.load_verify_locations(path)
    return context


def _missing_bundles(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The variables that should name certificates, but name no file."""
    found = ((name, environment.get(name, "")) for name in ("SSL_CERT_FILE", *BUNDLE_VARIABLES))
    return tuple(
        f"{name} is {path}, which does not exist" for name, path in found if path and not os.path.exists(path)
    )


def _request_headers(request: ProxyRequest, credential: Credential, host: str) -> list[tuple[str, str]]:
    has_body = bool(request.body) or request.method == "POST"
    length = [("content-length", str(len(request.body)))] if has_body else []
    key = request.dialect.credential(credential.secret.reveal())
    return [("host", host), *request.headers, ("accept-encoding", "identity"), key, *length]


def _response_headers(headers: list[tuple[bytes, bytes]]) -> Headers:
    decoded = ((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers)
    return forwarded_headers(decoded, set())


async def _chunks(response: httpcore2.Response) -> AsyncIterator[bytes]:
    async for chunk in response.aiter_stream():
        yield chunk


class StreamRedactor:
    """Replaces one secret, plain or encoded, with asterisks wherever it occurs, even across chunks.

    The provider may echo the key, which the agent must never see. The length stays the same, so that a Content-Length
    header remains valid.
    """

    def __init__(self, secret: str) -> None:
        self._forms = [form.encode() for form in encoded_forms(secret)]
        self._held = b""

    def redact(self, body: bytes) -> bytes:
        for form in self._forms:
            body = body.replace(form, b"*" * len(form))
        return body

    def redact_headers(self, headers: Headers) -> Headers:
        return tuple(
            (name, self.redact(value.encode("latin-1")).decode("latin-1")) for name, value in headers
        )

    def feed(self, chunk: bytes) -> bytes:
        """Returns the next bytes to send; a tail that may be the start of the secret is held back."""
        redacted = self.redact(self._held + chunk)
        cut = len(redacted) - max(_overlap(redacted, form) for form in self._forms)
        self._held = redacted[cut:]
        return redacted[:cut]

    def flush(self) -> bytes:
        """Returns what was held back, after the last chunk."""
        held, self._held = self._held, b""
        return held


def _overlap(text: bytes, form: bytes) -> int:
    """The length of the longest prefix of `form` that the text ends with."""
    longest = min(len(form) - 1, len(text))
    return next((size for size in range(longest, 0, -1) if text.endswith(form[:size])), 0)
