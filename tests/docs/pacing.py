"""How the pool keeps to limits, told and untold, on a clock that is moved: `python -m tests.docs.pacing`."""

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

LIMIT, MINUTE, HOUR = 60, 60.0, 3600.0
CALLERS, CALL, REFUSAL = 12, 8.0, 0.1
POSSIBLE = {WindowKind.SLIDING: 3600, WindowKind.FIXED: 3600, WindowKind.BUCKET: 3660}
HEAD = "window   limit told  hint  admitted  of possible  refused  after 30 min"


@dataclass
class Story:
    """An hour of callers that never run out of work, on one key."""

    window: WindowKind
    told: bool
    hints: bool
    admitted: int = 0
    refused: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        rates = ((Dimension.REQUESTS, Rate(LIMIT, MINUTE)),) if self.told else ()
        key = Credential("key-1", "gemini", Secret("s" * 20), concurrency=CALLERS, rates=rates)
        self._leasing = LeaseManager(Pool([key]), lambda: 0.5, Budget(PriceList()))
        self._server = make_window(self.window, LIMIT, MINUTE)
        self._numbers = count()
        self._agenda: list[tuple[float, int, LeaseRequested | LeaseReleased]] = []

    def tell(self) -> "Story":
        for caller in range(CALLERS):
            self._plan(0.0, _wish(f"item-{caller}"))
        now = 0.0
        while now < HOUR:
            while self._agenda and self._agenda[0][0] <= now:
                self._hear(heapq.heappop(self._agenda)[2], now)
            for lease in self._leasing.grants(now):
                self._plan(*self._answer(lease, now))
            now = max(now, self._next(now))
        return self

    def line(self) -> str:
        told, hint = "yes" if self.told else "no", "yes" if self.hints else "no"
        share, late = self.admitted / POSSIBLE[self.window], sum(at >= HOUR / 2 for at in self.refused)
        return (
            f"{self.window.value:<8} {told:<11} {hint:<5} {self.admitted:>8} {share:>12.1%} "
            f"{len(self.refused):>8} {late:>13}"
        )

    def _next(self, now: float) -> float:
        wake = self._leasing.wake_at(now)
        return min(moment for moment in (self._agenda[0][0] if self._agenda else HOUR, wake or HOUR))

    def _hear(self, event: LeaseRequested | LeaseReleased, now: float) -> None:
        if isinstance(event, LeaseRequested):
            self._leasing.request(event, now)
        else:
            self._leasing.release(event, now)
            self._leasing.request(_wish(event.item), now)

    def _answer(self, lease: Lease, now: float) -> tuple[float, LeaseReleased]:
        wait, item = self._server.wait(now, 1), lease.request.holder
        if wait <= 0:
            self._server.spend(now, 1)
            self.admitted += 1
            return now + CALL, LeaseReleased(item, lease.id, CALL, Usage(1, 1000, 1000))
        self.refused.append(now)
        refusal = Refusal(RefusalKind.RATE_LIMITED, "429", wait if self.hints else None)
        return now + REFUSAL, LeaseReleased(item, lease.id, REFUSAL, refusal=refusal)

    def _plan(self, at: float, event: LeaseRequested | LeaseReleased) -> None:
        heapq.heappush(self._agenda, (at, next(self._numbers), event))


def table() -> str:
    return "\n".join([HEAD, *(record.tell().line() for record in stories())])


def stories() -> Iterator[Story]:
    for window in WindowKind:
        yield Story(window, told=True, hints=True)
        yield Story(window, told=False, hints=True)
        yield Story(window, told=False, hints=False)


def _wish(item: str) -> LeaseRequested:
    return LeaseRequested(item, "draft-1", ("gemini",), ("gemini-2.5-pro",), 1000, 1000)


if __name__ == "__main__":
    print(table())
