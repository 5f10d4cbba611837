"""Carries calls, each by itself, to an answer."""

import itertools
from collections.abc import Callable

from agentos.gateway.forwarder import Forwarder
from agentos.gateway.lease_broker import LeaseBroker, NoKey
from agentos.gateway.request_parser import ProxyRequest
from agentos.gateway.responses import send_error
from agentos.gateway.upstream import Upstream
from agentos.gateway.usage import CallEnding, CallRecord
from agentos.gateway.way import CallContext, Clocks
from agentos.http.connection import Connection


class Relay:
    """`desk` lends keys for work, `aside` for what costs no quota, such as counting tokens."""

    def __init__(
        self, context: LeaseBroker, aside: LeaseBroker, upstream: Upstream, clocks: Clocks, max_wait: float
    ) -> None:
        self._broker = context
        self._aside = aside
        self._upstream = upstream
        self._clocks = clocks
        self._max_wait = max_wait
        self._numbers = itertools.count(1)

    async def forward(
        self, record: CallRecord, asked: ProxyRequest, out: Connection, say: Callable[[str], None]
    ) -> None:
        """Answers, one way or another; `record` tells how, also when it is cancelled."""
        call = Forwarder(self._context(record.item, asked), record, asked, out, say)
        began = self._clocks.host()
        try:
            await call.forward(began + self._max_wait)
        except NoKey as error:
            record.ending, record.status = CallEnding.NO_KEY, error.error.value
            send_error(out, asked, error.error, str(error), error.seconds)
        finally:
            record.seconds = self._clocks.host() - began

    def _context(self, item: str, asked: ProxyRequest) -> CallContext:
        # Each call holds its keys by itself, so that it can be given up by itself.
        holder = f"{item} {next(self._numbers)}"
        return CallContext(
            holder, self._aside if asked.is_unmetered else self._broker, self._upstream, self._clocks
        )
