"""Lets in who has a token, and writes down what became of each call."""

from collections.abc import Callable

from agentos.gateway.account import CallRecord
from agentos.gateway.answers import refuse, refuse_stranger
from agentos.gateway.asking import Asked, read, wants_upgrade
from agentos.gateway.dialects import DIALECTS
from agentos.gateway.dialects.dialect import Trouble
from agentos.gateway.relay import Relay
from agentos.gateway.tokens import Mint
from agentos.http.connection import Connection, Incoming
from agentos.http.loopback import names_loopback

_STRANGER = "this is not a token of this gateway; use the one that it printed, in its variables, for as long as it runs"
_UNKNOWN = f"unknown path: expected one below /{', /'.join(DIALECTS)}"


class Reception:
    """`over` hears of every call, `waits` of those that have to wait for a key.

    `unaffordable` says why a call must not be made, if so.
    """

    def __init__(
        self,
        mint: Mint,
        relay: Relay,
        over: Callable[[CallRecord], None],
        waits: Callable[[str, str], None],
        unaffordable: Callable[[Asked], str | None],
    ) -> None:
        self._mint = mint
        self._relay = relay
        self._over = over
        self._waits = waits
        self._unaffordable = unaffordable

    async def attend(self, incoming: Incoming, out: Connection) -> None:
        if not names_loopback(incoming.headers):
            refuse_stranger(out, 403, "this gateway answers to loopback names only")
            return
        if (asked := read(incoming)) is None:
            refuse_stranger(out, 404, _UNKNOWN)
            return
        item = next((found for token in asked.tokens if (found := self._mint.item(token))), None)
        if item is None:
            refuse(out, asked, Trouble.TOKEN, _STRANGER)
        elif wants_upgrade(incoming):
            refuse(out, asked, Trouble.UPGRADE, "WebSockets are not carried; ask without an upgrade")
        elif reason := self._unaffordable(asked):
            refuse(out, asked, Trouble.UNPAID, reason)
        else:
            await self._carry(item, asked, out)

    async def _carry(self, item: str, asked: Asked, out: Connection) -> None:
        record = CallRecord(item, asked.dialect.provider, asked.model)
        try:
            await self._relay.carry(record, asked, out, lambda reason: self._waits(item, reason))
        finally:
            self._over(record)
