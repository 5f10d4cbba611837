"""Sends a call to its provider, with the key that was lent for it."""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpcore2

from agentos.core.quota.credentials import Credential
from agentos.gateway.request_parser import ProxyRequest, passed_on
from agentos.http.connection import Headers

CONNECTING = 15.0
# A model may think for long before its first word.
SILENT = 900.0
KEPT_OPEN = 60.0
LOCAL = ("127.0.0.1", "localhost", "::1")
TIMES = {"connect": CONNECTING, "read": SILENT, "write": SILENT, "pool": None}


class NoAnswer(Exception):
    """The provider could not be reached, or broke off."""


@dataclass(frozen=True, slots=True)
class UpstreamResponse:
    """An answer that has begun; its body comes piece by piece, as it arrives."""

    status: int
    headers: Headers
    body: AsyncIterator[bytes]

    @property
    def named(self) -> Mapping[str, str]:
        return dict(self.headers)


class Upstream:
    """Keeps connections to the providers open between calls."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._pools: dict[str, httpcore2.AsyncConnectionPool] = {}
        self._certificates: ssl.SSLContext | None = None

    @asynccontextmanager
    async def send(self, asked: ProxyRequest, credential: Credential) -> AsyncIterator[UpstreamResponse]:
        """Leaving it ends the call, answered to the end or not."""
        base = urlsplit(asked.dialect.base(credential.base_url or asked.dialect.home))
        url = _url(base.scheme, base.hostname or "", base.port, f"{base.path.rstrip('/')}{_target(asked)}")
        try:
            async with self._pool(base.scheme, base.hostname or "").stream(
                asked.method,
                url,
                headers=_headers(asked, credential, base.netloc.rpartition("@")[2]),
                content=asked.body or None,
                extensions={"timeout": TIMES},
            ) as response:
                yield UpstreamResponse(response.status, _lowered(response.headers), _pieces(response))
        except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError) as error:
            raise NoAnswer(f"no answer: {type(error).__name__}") from error
        except (httpcore2.ProxyError, httpcore2.UnsupportedProtocol, OSError) as error:
            raise NoAnswer(f"no answer: {type(error).__name__}") from error

    async def close(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()

    def _pool(self, scheme: str, host: str) -> httpcore2.AsyncConnectionPool:
        proxy = proxy_for(scheme, host, self._environment)
        if proxy not in self._pools:
            self._pools[proxy] = httpcore2.AsyncConnectionPool(
                ssl_context=self._trust() if scheme == "https" else None,
                proxy=httpcore2.Proxy(proxy) if proxy else None,
                max_connections=None,
                keepalive_expiry=KEPT_OPEN,
            )
        return self._pools[proxy]

    def _trust(self) -> ssl.SSLContext:
        """Read once: it takes longer than everything else that the gateway does for a call."""
        if self._certificates is None:
            self._certificates = ssl.create_default_context()
        return self._certificates


def proxy_for(scheme: str, host: str, environment: Mapping[str, str]) -> str:
    """The proxy that the environment names for it; empty for none."""
    named = {name.lower(): value for name, value in environment.items()}
    excepted = [name.strip().lstrip(".") for name in named.get("no_proxy", "").split(",")]
    if host in LOCAL or any(host == name or host.endswith(f".{name}") for name in excepted if name):
        return ""
    return named.get(f"{scheme}_proxy") or named.get("all_proxy") or ""


def _url(scheme: str, host: str, port: int | None, target: str) -> httpcore2.URL:
    return httpcore2.URL(
        scheme=scheme.encode(), host=host.encode(), port=port, target=target.encode("latin-1")
    )


def _target(asked: ProxyRequest) -> str:
    return f"{asked.path}?{asked.query}" if asked.query else asked.path


def _headers(asked: ProxyRequest, credential: Credential, host: str) -> list[tuple[str, str]]:
    length = [("content-length", str(len(asked.body)))] if asked.body or asked.method == "POST" else []
    key = asked.dialect.credential(credential.secret.reveal())
    return [("host", host), *asked.headers, ("accept-encoding", "identity"), key, *length]


def _lowered(headers: list[tuple[bytes, bytes]]) -> Headers:
    found = ((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers)
    return passed_on(found, set())


async def _pieces(response: httpcore2.Response) -> AsyncIterator[bytes]:
    async for piece in response.aiter_stream():
        yield piece
