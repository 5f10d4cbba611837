"""Request queue: the lease requests that wait, by kind, in order of priority."""

import heapq
import itertools
from bisect import bisect_left, insort
from collections.abc import Callable
from enum import Enum, auto

from agentos.core.quota.lease import Kind, LeaseRequest
from agentos.core.ratelimit.limits import CallCost

NEVER = float("inf")
MAX_QUEUES = 256  # before empty ones are removed
_Entry = tuple[float, int, LeaseRequest]
"""A queued request: its priority, its number in order of arrival, and the request itself."""


class Decision(Enum):
    """What happened to a request that `RequestQueue.serve` offered."""

    GRANTED = auto()
    BLOCKED = auto()
    """It waits, and holds back requests of its kind that cost as much or more."""
    BLOCKED_KIND = auto()
    """It waits, and so do all others of its kind."""
    STOP = auto()
    """The budget cannot pay for it: the pass ends without serving any further request."""


class RequestQueue:
    """The waiting requests, one queue per kind, since the same keys can serve all requests of a kind.

    `serve` offers the requests in order of priority. If the first request of a queue cannot be served, the rest
    of that queue is skipped where possible, so that the cost of a pass grows with the number of kinds, not of requests.
    """

    def __init__(self) -> None:
        self.count = 0
        self._queues: dict[Kind, list[_Entry]] = {}
        self._delayed: list[tuple[float, _Entry]] = []  # a heap by `not_before`
        self._by_holder: dict[str, list[_Entry]] = {}
        self._numbers = itertools.count()

    def add(self, request: LeaseRequest) -> bool:
        """Return False if the request joined an existing queue of its kind."""
        self.count += 1
        entry = (request.priority, next(self._numbers), request)
        self._by_holder.setdefault(request.holder, []).append(entry)
        if request.not_before > request.requested_at:
            heapq.heappush(self._delayed, (request.not_before, entry))
        elif (queue := self._queues.get(request.kind)) is not None:
            insort(queue, entry)
            return False
        else:
            self._enqueue(entry)
        return True

    @property
    def next_delayed_at(self) -> float:
        return self._delayed[0][0] if self._delayed else NEVER

    def due(self, now: float) -> list[LeaseRequest]:
        """The requests that wait only for a key, in order of priority."""
        entries = list(itertools.chain.from_iterable(self._queues.values()))
        entries += [entry for at, entry in self._delayed if at <= now]
        return [request for _, _, request in sorted(entries)]

    def heads(self, now: float) -> list[LeaseRequest]:
        """The first request of each kind that waits only for a key."""
        found = {entry[2].kind: entry[2] for at, entry in self._delayed if at <= now}
        return list((found | {kind: queue[0][2] for kind, queue in self._queues.items() if queue}).values())

    def is_delayed(self, holder: str, now: float) -> bool:
        """Whether a request of this holder waits for its own delay to end."""
        return any(at > now and entry[2].holder == holder for at, entry in self._delayed)

    def any_due(self, now: float) -> bool:
        return self.count > len(self._delayed) or self.next_delayed_at <= now

    def queue_length(self, kind: Kind) -> int:
        return len(self._queues.get(kind, ()))

    def end_delays_of(self, provider: str, now: float) -> None:
        """End the delay of all requests that may use this provider."""
        self._delayed = [
            (min(at, now) if provider in entry[2].providers else at, entry) for at, entry in self._delayed
        ]
        heapq.heapify(self._delayed)

    def drop(self, holder: str) -> None:
        for entry in self._by_holder.pop(holder, ()):
            self.count -= 1
            queue = self._queues.get(entry[2].kind, [])
            position = bisect_left(queue, entry)
            if position < len(queue) and queue[position] is entry:
                del queue[position]
            else:
                self._delayed = [delayed for delayed in self._delayed if delayed[1] is not entry]
                heapq.heapify(self._delayed)

    def serve(self, now: float, decide: Callable[[LeaseRequest], Decision]) -> None:
        """Offer the requests that are due to `decide`, and remove those that it grants."""
        while self._delayed and self._delayed[0][0] <= now:
            self._enqueue(heapq.heappop(self._delayed)[1])
        queues = [queue for queue in self._queues.values() if queue]
        if len(queues) == 1 and len(queues[0]) == 1:  # the usual case
            if decide(queues[0][0][2]) is Decision.GRANTED:
                self._remove_granted(queues[0].pop())
        else:
            self._serve_queues([_QueuePass(queue) for queue in queues], decide)

    def _serve_queues(self, queues: "list[_QueuePass]", decide: Callable[[LeaseRequest], Decision]) -> None:
        heads = [(queue.entries[0], queue) for queue in queues]  # by priority and arrival
        heapq.heapify(heads)
        while heads:
            entry, queue = heads[0]
            decision = decide(entry[2])
            if decision is Decision.STOP:
                break
            if decision is Decision.GRANTED:
                self._remove_granted(entry)
            upcoming = queue.advance(decision)
            if upcoming is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (upcoming, queue))
        for queue in queues:
            queue.remove_granted()

    def _remove_granted(self, entry: _Entry) -> None:
        self.count -= 1
        entries = self._by_holder[entry[2].holder]
        entries.remove(entry)
        if not entries:
            del self._by_holder[entry[2].holder]

    def _enqueue(self, entry: "_Entry") -> None:
        kind = entry[2].kind
        if (queue := self._queues.get(kind)) is not None:
            insort(queue, entry)
            return
        if len(self._queues) >= MAX_QUEUES:
            self._queues = {name: queue for name, queue in self._queues.items() if queue}
        self._queues[kind] = [entry]


class _QueuePass:
    """One queue during one pass: entries before `position` are handled; `passed` are the handled ones that keep waiting."""

    __slots__ = ("_blocked", "_granted", "entries", "passed", "position")

    def __init__(self, entries: list[_Entry]) -> None:
        self.entries = entries
        self.position = 0
        self.passed: list[_Entry] = []
        self._granted = 0
        self._blocked: list[CallCost] = []

    def advance(self, decision: Decision) -> _Entry | None:
        """Note the decision and return the next entry worth offering; None if there is none."""
        if decision is Decision.BLOCKED_KIND:
            return None
        entry = self.entries[self.position]
        self.position += 1
        if decision is Decision.GRANTED:
            self._granted += 1
        else:
            self.passed.append(entry)
            self._blocked.append(entry[2].cost)
        while self.position < len(self.entries):
            upcoming = self.entries[self.position]
            if not self._blocked or not any(cost.within(upcoming[2].cost) for cost in self._blocked):
                return upcoming
            self.passed.append(upcoming)
            self.position += 1
        return None

    def remove_granted(self) -> None:
        if self._granted:
            self.entries[: self.position] = self.passed
