"""Carries calls, each by itself, to an answer."""

import itertools
from collections.abc import Callable

from agentos.gateway.account import CallRecord, Ending
from agentos.gateway.answers import refuse
from agentos.gateway.asking import Asked
from agentos.gateway.call import Call
from agentos.gateway.desk import Desk, NoKey
from agentos.gateway.upstream import Upstream
from agentos.gateway.way import Clocks, Way
from agentos.http.connection import Connection


class Relay:
    """`desk` lends keys for work, `aside` for what costs no quota, such as counting tokens."""

    def __init__(self, desk: Desk, aside: Desk, upstream: Upstream, clocks: Clocks, max_wait: float) -> None:
        self._desk = desk
        self._aside = aside
        self._upstream = upstream
        self._clocks = clocks
        self._max_wait = max_wait
        self._numbers = itertools.count(1)

    async def carry(
        self, record: CallRecord, asked: Asked, out: Connection, say: Callable[[str], None]
    ) -> None:
        """Answers, one way or another; `record` tells how, also when it is cancelled."""
        call = Call(self._way(record.item, asked), record, asked, out, say)
        began = self._clocks.host()
        try:
            await call.carry(began + self._max_wait)
        except NoKey as error:
            record.ending, record.status = Ending.NO_KEY, error.trouble.value
            refuse(out, asked, error.trouble, str(error), error.seconds)
        finally:
            record.seconds = self._clocks.host() - began

    def _way(self, item: str, asked: Asked) -> Way:
        # Each call holds its keys by itself, so that it can be given up by itself.
        holder = f"{item} {next(self._numbers)}"
        return Way(holder, self._aside if asked.is_free else self._desk, self._upstream, self._clocks)
