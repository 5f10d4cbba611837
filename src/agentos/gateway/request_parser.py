"""Parses an agent's request: provider, token, model and an estimate of its input tokens."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentos.gateway.dialects import DIALECTS
from agentos.gateway.dialects.base import GatewayDialect, mapping
from agentos.http.connection import Headers, HttpRequest
from agentos.models import CHARS_PER_TOKEN

# Parsing a larger body would block the event loop; the model is found by a search instead.
MAX_PARSED_BYTES = 256 * 1024
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
REPLACED_HEADERS = {"host", "content-length", "accept-encoding", "expect"}
_MODEL = re.compile(rb'"model"\s*:\s*"([^"\\]{1,200})"')
_DOT_SEGMENT = re.compile(r"(?:^|/)(?:\.|%2e){1,2}(?:/|$)", re.IGNORECASE)
# Base64 of an image or a file: its length says nothing about tokens.
_ENCODED = re.compile(rb"[A-Za-z0-9+/=_-]{4096,}")


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """A request to forward; `path`, `query` and `headers` are the provider's and contain no credentials.

    `tokens` are all the values that may be the gateway's token.
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

    @property
    def is_unmetered(self) -> bool:
        """True if the request runs no model, and therefore uses no quota."""
        return self.method != "POST" or self.dialect.is_unmetered(self.path)


def parse_request(incoming: HttpRequest) -> ProxyRequest | None:
    """Returns None if the path belongs to no provider."""
    path, _, query = incoming.target.partition("?")
    provider, _, rest = path.removeprefix("/").partition("/")
    dialect = DIALECTS.get(provider)
    if dialect is None or _DOT_SEGMENT.search(rest):
        return None
    path = dialect.path(f"/{rest}")
    return ProxyRequest(
        dialect,
        _tokens(incoming.headers, query),
        incoming.method,
        path,
        "&".join(part for part in query.split("&") if part and not _is_key(part)),
        forwarded_headers(incoming.headers, CREDENTIAL_HEADERS | REPLACED_HEADERS),
        incoming.body,
        dialect.model(path, _parse_body(incoming.body)),
        _estimate_input_tokens(incoming.body),
    )


def forwarded_headers(headers: Iterable[tuple[str, str]], dropped: set[str]) -> Headers:
    """The headers without `dropped` and without those that apply to one connection only."""
    given = tuple(headers)
    per_connection = {
        option.strip().lower() for name, value in given if name == "connection" for option in value.split(",")
    }
    excluded = dropped | HOP_BY_HOP_HEADERS | per_connection
    return tuple((name, value) for name, value in given if name not in excluded)


def wants_upgrade(incoming: HttpRequest) -> bool:
    return any(name == "upgrade" for name, _ in incoming.headers)


def _tokens(headers: Headers, query: str) -> tuple[str, ...]:
    """Every place where an SDK puts its key; an agent may send a key of its own in another of them."""
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
        found = _MODEL.search(body)
        return {"model": found[1].decode("utf-8", "replace")} if found else {}
    try:
        return mapping(json.loads(body)) if body else {}
    except (ValueError, RecursionError):
        return {}


def _estimate_input_tokens(body: bytes) -> int:
    size = len(_ENCODED.sub(b"", body)) if len(body) > MAX_PARSED_BYTES else len(body)
    return size // CHARS_PER_TOKEN
