"""Counts each item's calls in flight, so that a run knows when all calls of a finished program have been counted."""

import asyncio
from collections import Counter
from collections.abc import Callable

SETTLE_TIMEOUT = 2.0  # seconds that an item's end waits for calls of processes that it left behind


class CallsInFlight:
    """Counts the calls in flight of each item, so that an item is settled only after its last one.

    After `settle(item)`, `on_settled(item)` is called: at once if none is in flight, otherwise when the last one ends.

    This matters because a program that has read the end of a response may exit before the gateway has read the end of
    the stream.
    """

    def __init__(self, on_settled: Callable[[str], None], timeout: float = SETTLE_TIMEOUT) -> None:
        self._on_settled = on_settled
        self._timeout = timeout
        self._calls: Counter[str] = Counter()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def begin(self, item: str) -> None:
        self._calls[item] += 1

    def end(self, item: str) -> None:
        self._calls[item] -= 1
        if not self._calls[item]:
            del self._calls[item]
            if item in self._timers:
                self._finish(item)

    def settle(self, item: str) -> None:
        if earlier := self._timers.pop(item, None):
            earlier.cancel()
        loop = asyncio.get_running_loop()
        delay = self._timeout if self._calls[item] else 0.0
        self._timers[item] = loop.call_later(delay, self._finish, item)

    def _finish(self, item: str) -> None:
        self._timers.pop(item).cancel()
        self._on_settled(item)
