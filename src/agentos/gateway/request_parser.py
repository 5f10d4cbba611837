"""What an agent asks for, as far as the gateway has to know."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentos.gateway.dialects import DIALECTS
from agentos.gateway.dialects.base import GatewayDialect, mapping
from agentos.http.connection import Headers, HttpRequest

CHARACTERS_A_TOKEN = 4
# A larger body is searched instead of parsed: that would hold everybody up.
MOST_PARSED = 256 * 1024
CREDENTIALS = {"authorization", "x-api-key", "x-goog-api-key"}
HOP_BY_HOP = {
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
# Said anew for the next server; without compression, so that tokens can be counted on the way.
OURS = {"host", "content-length", "accept-encoding", "expect"}
_MODEL = re.compile(rb'"model"\s*:\s*"([^"\\]{1,200})"')
_UPWARDS = re.compile(r"(?:^|/)(?:\.|%2e){1,2}(?:/|$)", re.IGNORECASE)
# What stands for a picture or a file; it is not counted by its letters.
_ENCODED = re.compile(rb"[A-Za-z0-9+/=_-]{4096,}")


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """`path` and `query` are for the provider; what may be the token is not in them any more."""

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
        """Whether it asks for no work of a model, and so for nothing of the quota."""
        return self.method != "POST" or self.dialect.is_unmetered(self.path)


def parse_request(incoming: HttpRequest) -> ProxyRequest | None:
    """None for a path that belongs to no provider."""
    path, _, query = incoming.target.partition("?")
    provider, _, rest = path.removeprefix("/").partition("/")
    dialect = DIALECTS.get(provider)
    if dialect is None or _UPWARDS.search(rest):
        return None
    path = dialect.path(f"/{rest}")
    body = _parsed(incoming.body)
    return ProxyRequest(
        dialect,
        _tokens(incoming.headers, query),
        incoming.method,
        path,
        "&".join(part for part in query.split("&") if part and not _is_key(part)),
        passed_on(incoming.headers, CREDENTIALS | OURS),
        incoming.body,
        dialect.model(path, body),
        _input_tokens(incoming.body),
    )


def passed_on(headers: Iterable[tuple[str, str]], dropped: set[str]) -> Headers:
    """Without those that are meant for one connection alone."""
    kept = tuple(headers)
    named = {
        word.strip().lower() for name, value in kept if name == "connection" for word in value.split(",")
    }
    return tuple(
        (name, value) for name, value in kept if name not in dropped | HOP_BY_HOP and name not in named
    )


def wants_upgrade(incoming: HttpRequest) -> bool:
    return any(name == "upgrade" for name, _ in incoming.headers)


def _tokens(headers: Headers, query: str) -> tuple[str, ...]:
    """Wherever an SDK puts a key; an agent may have one of its own in another place."""
    given = dict(headers)
    scheme, _, bearer = given.get("authorization", "").partition(" ")
    return (
        given.get("x-goog-api-key", ""),
        given.get("x-api-key", ""),
        bearer.strip() if scheme.lower() == "bearer" else "",
        next((part.partition("=")[2] for part in query.split("&") if _is_key(part)), ""),
    )


def _is_key(part: str) -> bool:
    return part.partition("=")[0] == "key"


def _parsed(body: bytes) -> Mapping[str, Any]:
    if len(body) > MOST_PARSED:
        found = _MODEL.search(body)
        return {"model": found[1].decode("utf-8", "replace")} if found else {}
    try:
        return mapping(json.loads(body)) if body else {}
    except (ValueError, RecursionError):
        return {}


def _input_tokens(body: bytes) -> int:
    text = len(_ENCODED.sub(b"", body)) if len(body) > MOST_PARSED else len(body)
    return text // CHARACTERS_A_TOKEN
