"""The guard in front of every route: checks host, origin, body size and session, and sets the headers of every
response."""

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentos.page.access import SESSION_HEADER, HostCheck, PageSessions, cookie_of, origin_problem

MAX_BODY = 2 * 1024 * 1024  # bytes; a draft edited in the page
MAX_DISCARDED = 4 * MAX_BODY  # bytes
DISCARD_TIMEOUT = 5.0  # seconds
LOGIN_PATHS = frozenset(("/login", "/login/login.js", "/login/login.css"))
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "cache-control": "no-store",
}


class BodyTooLarge(Exception):
    """The request has more than MAX_BODY bytes."""

    def __init__(self) -> None:
        super().__init__(f"the body is larger than {MAX_BODY:,} bytes")


@dataclass(frozen=True, slots=True)
class Guard:
    """Refuses a request before any route sees it, unless the page itself or a program with a token sent it."""

    app: ASGIApp
    sessions: PageSessions
    hosts: HostCheck
    cookie_name: str
    login_page: Callable[[], bytes]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # a WebSocket; the page has none
            await send({"type": "websocket.close", "code": 1008})
            return
        safe_send = _with_headers(send)
        refusal = self._refusal(scope)
        if refusal is not None:
            # A person who opens an old address is told how to log in; a program gets the reason.
            is_navigation = (b"sec-fetch-mode", b"navigate") in scope["headers"]
            if refusal[0] == 401 and is_navigation:
                await _send(safe_send, 401, b"text/html", self.login_page())
            else:
                if refusal[0] == 413:
                    await _discard(receive)
                body = json.dumps({"error": refusal[1]}).encode()
                await _send(safe_send, refusal[0], b"application/json", body)
            return
        await self.app(scope, _bounded(receive), safe_send)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        method, path = str(scope["method"]), str(scope["path"])
        if not self.hosts.accepts(headers.get("host", "")):
            return 403, "unknown host: open the address that agentos page printed"
        if problem := origin_problem(method, path, headers):
            return 403, f"refused: the request comes from {problem}"
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MAX_BODY:
            return 413, str(BodyTooLarge())
        if path in LOGIN_PATHS:
            return None
        cookie = cookie_of(headers.get("cookie", ""), self.cookie_name)
        if self.sessions.allows(cookie, headers.get(SESSION_HEADER, ""), headers.get("authorization", "")):
            return None
        if method == "GET" and not path.startswith("/api/") and self.sessions.is_browser(cookie):
            return None
        return 401, "not logged in: open the address that agentos page printed"


def _with_headers(send: Send) -> Send:
    added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await send(message)

    return send_with_headers


def _bounded(receive: Receive) -> Receive:
    """Counts the bytes of the body, because a chunked request does not state its length."""
    total = 0

    async def receive_bounded() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > MAX_BODY:
            raise BodyTooLarge
        return message

    return receive_bounded


async def _discard(receive: Receive) -> None:
    """Read a bounded part of a refused body: a client that is still sending would get a reset, not the response."""
    total = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DISCARD_TIMEOUT):
            while total < MAX_DISCARDED:
                message = await receive()
                total += len(message.get("body", b""))
                if not message.get("more_body"):
                    return


async def _send(send: Send, status: int, kind: bytes, body: bytes) -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
