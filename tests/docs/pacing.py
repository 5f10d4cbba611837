"""How the pool does against limits that nobody told it, on a clock that is moved: `python -m tests.docs.pacing`."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from agentos.core.credentials import Credential
from agentos.core.events import LeaseReturned, LeaseWanted
from agentos.core.leasing import Leasing
from agentos.core.money import PriceList, Purse
from agentos.core.pacing import Dimension, Rate
from agentos.core.pool import Pool
from agentos.core.refusals import Refusal, RefusalKind
from agentos.core.results import Usage
from agentos.core.secrets import Secret
from agentos.models.offline.windows import Window, make_tally

LIMIT, MINUTE = 60, 60.0
CALLERS, CALL, REFUSAL = 12, 8.0, 0.1
HOUR = 3600.0
HEAD = "window   told     admitted  of possible  refused  in the first 10 min"


@dataclass
class Story:
    """An hour of callers that never run out of work, on one key."""

    window: Window
    told: bool
    hints: bool
    admitted: int = 0
    refused: list[float] = field(default_factory=list)

    def tell(self) -> "Story":
        rates = ((Dimension.REQUESTS, Rate(LIMIT, MINUTE)),) if self.told else ()
        key = Credential("key-1", "gemini", Secret("s" * 20), concurrency=CALLERS, rates=rates)
        leasing = Leasing(Pool([key]), lambda: 0.5, Purse(PriceList()))
        server, numbers, agenda = make_tally(self.window, LIMIT, MINUTE), count(), []
        for caller in range(CALLERS):
            heapq.heappush(agenda, (0.0, next(numbers), LeaseWanted(f"item-{caller}", "draft-1", ("gemini",))))
        now = 0.0
        while now < HOUR:
            due = [agenda[0][0]] if agenda else []
            wake = leasing.wake_at(now)
            now = max(now, min([*due, *([wake] if wake is not None else [])], default=HOUR))
            while agenda and agenda[0][0] <= now:
                event = heapq.heappop(agenda)[2]
                if isinstance(event, LeaseWanted):
                    leasing.wanted(event, now)
                else:
                    leasing.returned(event, now)
                    heapq.heappush(agenda, (now, next(numbers), LeaseWanted(event.item, "draft-1", ("gemini",))))
            for lease in leasing.grants(now):
                at, answer = self._answer(server, lease.id, lease.want.holder, now)
                heapq.heappush(agenda, (at, next(numbers), answer))
        return self

    def _answer(self, server, lease: str, item: str, now: float):
        wait = server.wait(now, 1)
        if wait <= 0:
            server.spend(now, 1)
            self.admitted += 1
            return now + CALL, LeaseReturned(item, lease, CALL, Usage(1, 1000, 1000))
        self.refused.append(now)
        refusal = Refusal(RefusalKind.RATE_LIMITED, "429", wait if self.hints else None)
        return now + REFUSAL, LeaseReturned(item, lease, REFUSAL, refusal=refusal)
