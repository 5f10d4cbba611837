"""Parses an agent's request: provider, token, model and an estimate of its input tokens."""

import contextlib
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentos.gateway.dialects import DIALECTS
from agentos.gateway.dialects.base import GatewayDialect, mapping
from agentos.http.connection import Headers, HttpRequest
from agentos.models import CHARS_PER_TOKEN
from agentos.models.refusal_base import BUDGET_HEADER

# Parsing a larger body would block the event loop, so only its outermost names are read.
MAX_PARSED_BYTES = 256 * 1024
MAX_INFLATED_BYTES = 32 * 1024 * 1024
CREDENTIAL_HEADERS = {"authorization", "x-api-key", "x-goog-api-key"}
HOP_BY_HOP_HEADERS = {
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
# The upstream request sets these itself. It asks for no compression, so that tokens can be counted in the response.
REPLACED_HEADERS = {
    BUDGET_HEADER,
    "traceparent",
    "tracestate",
    "host",
    "content-length",
    "accept-encoding",
    "expect",
}
_JSON_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*)"|[{}\[\]]')
_MODEL_VALUE = re.compile(rb'\s*:\s*"([^"\\]{1,200})"')
# A server behind us might resolve any of these to a path outside the provider's.
_UNSAFE_PATH = re.compile(
    r"(?:^|/)(?:\.|%(?:25)*(?:2e|c0%(?:25)*ae)){1,2}(?:;|%(?:25)*3b|/|$)|%(?:25)*(?:2f|5c)|\\", re.IGNORECASE
)
# Base64 of an image or a file: its length says nothing about tokens.
_ENCODED = re.compile(rb"[A-Za-z0-9+/=_-]{4096,}")


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """A request to forward; `path`, `query` and `headers` are the provider's and contain no credentials.

    `tokens` are all values that may be the gateway's token. `gateway_url` is the provider's base URL as the client sees
    it.
    """

    dialect: GatewayDialect
    tokens: tuple[str, ...] = field(repr=False)
    method: str
    path: str
    query: str
    headers: Headers
    body: bytes = field(repr=False)
    model: str = ""
    input_tokens: int = 0
    gateway_url: str = ""

    @property
    def token(self) -> str:
        return next((token for token in self.tokens if token), "")

    @property
    def is_unmetered(self) -> bool:
        """Whether the request runs no model, and so uses no quota."""
        return self.method != "POST" or self.dialect.is_unmetered(self.path)


def parse_request(incoming: HttpRequest, scheme: str = "http") -> ProxyRequest | None:
    """Returns None if the path belongs to no provider. `scheme` is that of the gateway itself."""
    path, _, query = incoming.target.partition("?")
    provider, _, rest = path.removeprefix("/").partition("/")
    dialect = DIALECTS.get(provider)
    if dialect is None or _UNSAFE_PATH.search(rest):
        return None
    path = dialect.path(f"/{rest}")
    plain = _inflated(incoming)
    return ProxyRequest(
        dialect,
        _tokens(incoming.headers, query),
        incoming.method,
        path,
        "&".join(part for part in query.split("&") if part and not _is_key(part)),
        forwarded_headers(incoming.headers, CREDENTIAL_HEADERS | REPLACED_HEADERS),
        incoming.body,
        dialect.model(path, _parse_body(plain)),
        _estimate_input_tokens(plain),
        f"{scheme}://{dict(incoming.headers).get('host', '')}/{provider}{dialect.version}",
    )


def forwarded_headers(headers: Iterable[tuple[str, str]], dropped: set[str]) -> Headers:
    """The headers without `dropped` and without those that apply to one connection only."""
    given = tuple(headers)
    per_connection = {
        option.strip().lower() for name, value in given if name == "connection" for option in value.split(",")
    }
    excluded = dropped | HOP_BY_HOP_HEADERS | per_connection
    return tuple((name, value) for name, value in given if name not in excluded)


def wants_websocket(incoming: HttpRequest) -> bool:
    """Other upgrades, such as h2c, are offers that a server may ignore."""
    return any(name == "upgrade" and "websocket" in value.lower() for name, value in incoming.headers)


def _tokens(headers: Headers, query: str) -> tuple[str, ...]:
    """The values from every place where an SDK puts its key; an agent may send its own key in one of the others."""
    given = dict(headers)
    scheme, _, bearer = given.get("authorization", "").partition(" ")
    return (
        given.get("x-goog-api-key", ""),
        given.get("x-api-key", ""),
        bearer.strip() if scheme.lower() == "bearer" else "",
        next((part.partition("=")[2] for part in query.split("&") if _is_key(part)), ""),
    )


def _is_key(query_part: str) -> bool:
    return query_part.partition("=")[0] == "key"


def _parse_body(body: bytes) -> Mapping[str, Any]:
    if len(body) > MAX_PARSED_BYTES:
        return {"model": _outermost_model(body)}
    try:
        return mapping(json.loads(body)) if body else {}
    except (ValueError, RecursionError):
        return {}


def _outermost_model(body: bytes) -> str:
    """The value of "model" in the outermost object: messages and files inside it may contain the same word."""
    depth = 0
    for token in _JSON_TOKEN.finditer(body):
        match token[0][:1]:
            case b"{" | b"[":
                depth += 1
            case b"}" | b"]":
                depth -= 1
            case _ if depth == 1 and token[1] == b"model":
                if found := _MODEL_VALUE.match(body, token.end()):
                    return found[1].decode("utf-8", "replace")
    return ""


def _inflated(incoming: HttpRequest) -> bytes:
    """The decompressed body, as much of it as is needed to find the model."""
    if dict(incoming.headers).get("content-encoding", "identity") not in ("gzip", "deflate"):
        return incoming.body
    with contextlib.suppress(zlib.error):
        return zlib.decompressobj(47).decompress(incoming.body, MAX_INFLATED_BYTES)
    return incoming.body


def _estimate_input_tokens(body: bytes) -> int:
    size = len(_ENCODED.sub(b"", body)) if len(body) > MAX_PARSED_BYTES else len(body)
    return size // CHARS_PER_TOKEN
