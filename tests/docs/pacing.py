"""Simulates how well the pool keeps known and unknown limits: `python -m tests.docs.pacing`."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from agentos.core.protocol.events import LeaseReleased, LeaseRequested
from agentos.core.protocol.results import Usage
from agentos.core.quota.budget import Budget, PriceList
from agentos.core.quota.credentials import Credential
from agentos.core.quota.lease import Lease
from agentos.core.quota.lease_manager import LeaseManager
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.limits import Dimension, Rate
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.core.text.secrets import Secret
from agentos.offline.rate_windows import WindowKind, make_window

LIMIT = 60  # requests per minute
MINUTE, HOUR = 60.0, 3600.0  # seconds
CALLERS = 12
CALL, REFUSAL = 8.0, 0.1  # seconds that an answer and a refusal take
POSSIBLE = {WindowKind.SLIDING: 3600, WindowKind.FIXED: 3600, WindowKind.BUCKET: 3660}
HEAD = "window   limit known hint  admitted  of possible  refused  after 30 min"


@dataclass
class LimitSimulation:
    """One hour of callers that always have work, on one key."""

    window: WindowKind
    known: bool
    hints: bool
    admitted: int = 0
    refused: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        rates = ((Dimension.REQUESTS, Rate(LIMIT, MINUTE)),) if self.known else ()
        key = Credential("key-1", "gemini", Secret("s" * 20), concurrency=CALLERS, rates=rates)
        self._lease_manager = LeaseManager(Pool([key]), lambda: 0.5, Budget(PriceList()))
        self._server = make_window(self.window, LIMIT, MINUTE)
        self._numbers = count()
        self._events: list[tuple[float, int, LeaseRequested | LeaseReleased]] = []

    def run(self) -> "LimitSimulation":
        for caller in range(CALLERS):
            self._schedule(0.0, _request(f"item-{caller}"))
        now = 0.0
        while now < HOUR:
            while self._events and self._events[0][0] <= now:
                self._handle(heapq.heappop(self._events)[2], now)
            for lease in self._lease_manager.grants(now):
                self._schedule(*self._answer(lease, now))
            now = max(now, self._next(now))
        return self

    def line(self) -> str:
        known, hint = "yes" if self.known else "no", "yes" if self.hints else "no"
        share, late = self.admitted / POSSIBLE[self.window], sum(at >= HOUR / 2 for at in self.refused)
        return (
            f"{self.window.value:<8} {known:<11} {hint:<5} {self.admitted:>8} {share:>12.1%} "
            f"{len(self.refused):>8} {late:>13}"
        )

    def _next(self, now: float) -> float:
        wake = self._lease_manager.wake_at(now)
        return min(moment for moment in (self._events[0][0] if self._events else HOUR, wake or HOUR))

    def _handle(self, event: LeaseRequested | LeaseReleased, now: float) -> None:
        if isinstance(event, LeaseRequested):
            self._lease_manager.request(event, now)
        else:
            self._lease_manager.release(event, now)
            self._lease_manager.request(_request(event.item), now)

    def _answer(self, lease: Lease, now: float) -> tuple[float, LeaseReleased]:
        wait, item = self._server.wait(now, 1), lease.request.holder
        if wait <= 0:
            self._server.spend(now, 1)
            self.admitted += 1
            return now + CALL, LeaseReleased(item, lease.id, CALL, Usage(1, 1000, 1000))
        self.refused.append(now)
        refusal = Refusal(RefusalKind.RATE_LIMITED, "429", wait if self.hints else None)
        return now + REFUSAL, LeaseReleased(item, lease.id, REFUSAL, refusal=refusal)

    def _schedule(self, at: float, event: LeaseRequested | LeaseReleased) -> None:
        heapq.heappush(self._events, (at, next(self._numbers), event))


def table() -> str:
    return "\n".join([HEAD, *(simulation.run().line() for simulation in simulations())])


def simulations() -> Iterator[LimitSimulation]:
    for window in WindowKind:
        yield LimitSimulation(window, known=True, hints=True)
        yield LimitSimulation(window, known=False, hints=True)
        yield LimitSimulation(window, known=False, hints=False)


def _request(item: str) -> LeaseRequested:
    return LeaseRequested(item, "draft-1", ("gemini",), ("gemini-2.5-pro",), 1000, 1000)


if __name__ == "__main__":
    print(table())
