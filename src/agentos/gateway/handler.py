"""Lets in who has a token, and writes down what became of each call."""

from collections.abc import Callable

from agentos.gateway.dialects import DIALECTS
from agentos.gateway.dialects.base import GatewayError
from agentos.gateway.relay import Relay
from agentos.gateway.request_parser import ProxyRequest, parse_request, wants_upgrade
from agentos.gateway.responses import plain_error, send_error
from agentos.gateway.tokens import TokenSigner
from agentos.gateway.usage import CallRecord
from agentos.http.connection import Connection, HttpRequest
from agentos.http.loopback import names_loopback

_STRANGER = "this is not a token of this gateway; use the one that it printed, in its variables, for as long as it runs"
_UNKNOWN = f"unknown path: expected one below /{', /'.join(DIALECTS)}"


class RequestHandler:
    """`over` hears of every call, `waits` of those that have to wait for a key.

    `unaffordable` says why a call must not be made, if so.
    """

    def __init__(
        self,
        signer: TokenSigner,
        relay: Relay,
        over: Callable[[CallRecord], None],
        waits: Callable[[str, str], None],
        unaffordable: Callable[[ProxyRequest], str | None],
    ) -> None:
        self._signer = signer
        self._relay = relay
        self._over = over
        self._waits = waits
        self._unaffordable = unaffordable

    async def handle(self, incoming: HttpRequest, out: Connection) -> None:
        if not names_loopback(incoming.headers):
            plain_error(out, 403, "this gateway answers to loopback names only")
            return
        if (asked := parse_request(incoming)) is None:
            plain_error(out, 404, _UNKNOWN)
            return
        item = next((found for token in asked.tokens if (found := self._signer.item(token))), None)
        if item is None:
            send_error(out, asked, GatewayError.TOKEN, _STRANGER)
        elif wants_upgrade(incoming):
            send_error(out, asked, GatewayError.UPGRADE, "WebSockets are not carried; ask without an upgrade")
        elif reason := self._unaffordable(asked):
            send_error(out, asked, GatewayError.UNPAID, reason)
        else:
            await self._forward(item, asked, out)

    async def _forward(self, item: str, asked: ProxyRequest, out: Connection) -> None:
        record = CallRecord(item, asked.dialect.provider, asked.model)
        try:
            await self._relay.forward(record, asked, out, lambda reason: self._waits(item, reason))
        finally:
            self._over(record)
