"""HTTP client of the gateway: sends a request to its provider with the leased key."""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpcore2

from agentos.core.quota.credentials import Credential
from agentos.gateway.request_parser import ProxyRequest, forwarded_headers
from agentos.http.connection import Headers

CONNECT_TIMEOUT = 15.0  # seconds
IDLE_TIMEOUT = 900.0  # seconds; a model may think for minutes before its first token
KEEPALIVE = 60.0  # seconds
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

    @property
    def header_map(self) -> Mapping[str, str]:
        return dict(self.headers)


class Upstream:
    """Sends requests, keeping connections to the providers open between calls.

    Honours HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY of `environment`.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._pools: dict[str, httpcore2.AsyncConnectionPool] = {}
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
            async with self._pool(base.scheme, host).stream(
                request.method,
                url,
                headers=_request_headers(request, credential, base.netloc.rpartition("@")[2]),
                content=request.body or None,
                extensions={"timeout": TIMEOUTS},
            ) as response:
                yield UpstreamResponse(
                    response.status, _response_headers(response.headers), _chunks(response)
                )
        except (
            httpcore2.NetworkError,
            httpcore2.TimeoutException,
            httpcore2.ProtocolError,
            httpcore2.ProxyError,
            httpcore2.UnsupportedProtocol,
            OSError,
        ) as error:
            raise NoResponse(f"no response: {type(error).__name__}") from error

    async def close(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()

    def _pool(self, scheme: str, host: str) -> httpcore2.AsyncConnectionPool:
        proxy = proxy_for(scheme, host, self._environment)
        if proxy not in self._pools:
            if scheme == "https" and self._tls_context is None:
                # Loaded once: this takes longer than everything else the gateway does for a call.
                self._tls_context = ssl.create_default_context()
            self._pools[proxy] = httpcore2.AsyncConnectionPool(
                ssl_context=self._tls_context if scheme == "https" else None,
                proxy=httpcore2.Proxy(proxy) if proxy else None,
                max_connections=None,
                keepalive_expiry=KEEPALIVE,
            )
        return self._pools[proxy]


def proxy_for(scheme: str, host: str, environment: Mapping[str, str]) -> str:
    """The proxy that the environment configures for a host; empty for none."""
    variables = {name.lower(): value for name, value in environment.items()}
    exceptions = [name.strip().lstrip(".") for name in variables.get("no_proxy", "").split(",")]
    if host in LOCAL_HOSTS or any(host == name or host.endswith(f".{name}") for name in exceptions if name):
        return ""
    return variables.get(f"{scheme}_proxy") or variables.get("all_proxy") or ""


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
