"""Serves the rule machine on a loopback address."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO

from agentos.http.connection import Connection, HttpRequest
from agentos.http.server import has_loopback_host, listening
from agentos.offline.call_log import CallLog
from agentos.offline.config import ServerConfig
from agentos.offline.faults.parse import parse_faults
from agentos.offline.http_adapter import deliver, request_of
from agentos.offline.keys import KeyRing, OfflineKey
from agentos.offline.service import OfflineService
from agentos.offline.vendors import anthropic, gemini, openai_chat, openai_responses
from agentos.offline.vendors.neutral import NeutralRequest, Reply, whole

# the first that claims a request gets it; a path under /v1 that no other knows is Gemini's
DIALECTS = (anthropic.DIALECT, openai_chat.DIALECT, openai_responses.DIALECT, gemini.DIALECT)


async def serve(
    config: ServerConfig,
    keys: Iterable[OfflineKey],
    ready: Callable[[str], None],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
) -> None:
    """Tells `ready` its URL, then serves until it is cancelled, which drops every connection."""
    with _ledger_file(config) as file:
        reception = _OfflineHandler(config, keys, CallLog(time.time, file))
        async with listening(reception.handle, host=host, port=port) as url:
            ready(url)
            await asyncio.get_running_loop().create_future()


class _OfflineHandler:
    """Sends each request to the service, or to the server's own pages under /_offline/."""

    def __init__(self, config: ServerConfig, keys: Iterable[OfflineKey], call_log: CallLog) -> None:
        self._ledger = call_log
        self._service = OfflineService(config, KeyRing(keys), call_log, time.time)

    async def handle(self, incoming: HttpRequest, connection: Connection) -> None:
        async def send(reply: Reply) -> None:
            await deliver(reply, connection)

        if not has_loopback_host(incoming.headers):
            await send(_json(403, b'{"error": "this server answers to loopback names only"}'))
            return
        request = request_of(incoming)
        dialect = next((dialect for dialect in DIALECTS if dialect.claims(request)), None)
        if dialect:
            await self._service.handle(dialect, request, send)
        else:
            await send(self._own_page(request))

    def _own_page(self, request: NeutralRequest) -> Reply:
        match request.method, request.path:
            case "GET", "/_offline/ledger":
                return self._ledger_page(request.query.get("last", ""))
            case "POST", "/_offline/faults":
                return self._add_faults(request)
            case "DELETE", "/_offline/faults":
                self._service.script.clear()
                return _json(200, b"{}")
            case _:
                return _json(404, b'{"error": "not found"}')

    def _ledger_page(self, last: str) -> Reply:
        if last and not last.isdecimal():
            return whole(400, "text/plain; charset=utf-8", b"last is a number of calls, such as ?last=100")
        return _json(200, self._ledger.as_json(int(last) if last else None))

    def _add_faults(self, request: NeutralRequest) -> Reply:
        try:
            self._service.script.add(parse_faults(request.body.decode()))
        except ValueError as error:
            return whole(400, "text/plain; charset=utf-8", str(error).encode())
        return _json(200, b"{}")


def _json(status: int, body: bytes) -> Reply:
    return whole(status, "application/json", body)


@contextmanager
def _ledger_file(config: ServerConfig) -> Iterator[TextIO | None]:
    if config.ledger_file is None:
        yield None
        return
    with config.ledger_file.open("a", encoding="utf-8") as file:
        yield file
