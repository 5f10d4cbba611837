"""HTTP server of the offline models: routes requests to the vendors' dialects or to its own pages."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TextIO
from urllib.parse import parse_qsl, unquote, urlsplit

from agentos.http.connection import Connection, HttpRequest
from agentos.http.server import Endpoint, has_loopback_host, listening, on_stdin_closed
from agentos.offline.call_log import CallLog
from agentos.offline.config import KeyNames, OfflineKey, ServerConfig
from agentos.offline.faults import parse_faults
from agentos.offline.service import OfflineService
from agentos.offline.vendors import anthropic_messages, gemini_content, openai_chat, openai_responses
from agentos.offline.vendors.neutral import NeutralRequest, Reply, ReplyEnding, whole_reply

# The first dialect that claims a request gets it. Gemini is last: it claims every path under /v1.
DIALECTS = (
    anthropic_messages.DIALECT,
    openai_chat.DIALECT,
    openai_responses.DIALECT,
    gemini_content.DIALECT,
)
# Small pieces are sent together: a system call costs more than copying them.
SEND_BUFFER_BYTES = 65536


@dataclass(frozen=True, slots=True)
class ListenAddress:
    host: str
    port: int
    die_with_parent: bool


def run(
    config: ServerConfig, keys: Iterable[OfflineKey], on_ready: Callable[[str], None], address: ListenAddress
) -> None:
    """Serves until SIGTERM, SIGINT or, with `die_with_parent`, the end of standard input."""

    async def serve_until_stopped() -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(serve(config, keys, on_ready, host=address.host, port=address.port))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)
        if address.die_with_parent:
            on_stdin_closed(lambda: loop.call_soon_threadsafe(task.cancel))
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(serve_until_stopped())


async def serve(
    config: ServerConfig,
    keys: Iterable[OfflineKey],
    on_ready: Callable[[str], None],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
) -> None:
    """Calls `on_ready` with the URL, then serves until cancelled, which drops every connection."""
    with _open_ledger(config) as file:
        handler = _OfflineHandler(config, keys, CallLog(time.time, file))
        async with listening(handler.handle, Endpoint(host, port)) as url:
            on_ready(url)
            await asyncio.get_running_loop().create_future()


class _OfflineHandler:
    """Sends each request to the service, or answers with one of the server's own pages under /_offline/."""

    def __init__(self, config: ServerConfig, keys: Iterable[OfflineKey], call_log: CallLog) -> None:
        self._call_log = call_log
        self._service = OfflineService(config, KeyNames(keys), call_log, time.time)

    async def handle(self, incoming: HttpRequest, connection: Connection) -> None:
        async def send(reply: Reply) -> None:
            await _send_reply(reply, connection)

        if not has_loopback_host(incoming.headers):
            await send(_json(403, b'{"error": "only requests to a loopback host name are accepted"}'))
            return
        target = urlsplit(incoming.target)
        request = NeutralRequest(
            incoming.method,
            unquote(target.path),
            dict(parse_qsl(target.query)),
            dict(incoming.headers),
            incoming.body,
        )
        dialect = next((dialect for dialect in DIALECTS if dialect.claims(request)), None)
        if dialect:
            await self._service.handle(dialect, request, send)
        else:
            await send(self._own_page(request))

    def _own_page(self, request: NeutralRequest) -> Reply:
        match request.method, request.path:
            case "GET", "/_offline/ledger":
                last = request.query.get("last", "")
                if last and not last.isdecimal():
                    return _text(400, f"invalid last={last}: expected a number of calls, such as ?last=100")
                return _json(200, self._call_log.as_json(int(last) if last else None))
            case "POST", "/_offline/faults":
                try:
                    self._service.script.add(parse_faults(request.body.decode()))
                except ValueError as error:
                    return _text(400, str(error))
                return _json(200, b"{}")
            case "DELETE", "/_offline/faults":
                self._service.script.clear()
                return _json(200, b"{}")
            case _:
                return _json(404, b'{"error": "not found"}')


async def _send_reply(reply: Reply, connection: Connection) -> None:
    if reply.ending is ReplyEnding.SILENCE:
        # Cancelled when the client disconnects or the server stops.
        await asyncio.get_running_loop().create_future()
    if reply.ending is ReplyEnding.RESET_AT_ONCE:
        connection.reset()
        return
    framing = (
        ("transfer-encoding", "chunked") if reply.length is None else ("content-length", str(reply.length))
    )
    connection.begin(reply.status, [*reply.headers, framing])
    for piece in reply.body:
        if reply.pause or connection.pending > SEND_BUFFER_BYTES:
            await connection.flush()
        if reply.pause:
            await asyncio.sleep(reply.pause)
        connection.put(piece)
    if reply.ending is ReplyEnding.RESET_MIDWAY:
        connection.reset()
    else:
        connection.finish()


def _json(status: int, body: bytes) -> Reply:
    return whole_reply(status, "application/json", body)


def _text(status: int, text: str) -> Reply:
    return whole_reply(status, "text/plain; charset=utf-8", text.encode())


@contextlib.contextmanager
def _open_ledger(config: ServerConfig) -> Iterator[TextIO | None]:
    if config.ledger_file is None:
        yield None
        return
    with config.ledger_file.open("a", encoding="utf-8") as file:
        yield file
