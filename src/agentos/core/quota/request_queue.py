"""Request queue: the lease requests that wait, by kind, in order of priority."""

import heapq
import itertools
from bisect import insort
from collections.abc import Callable
from enum import Enum, auto

from agentos.core.quota.lease import Kind, LeaseRequest
from agentos.core.ratelimit.limits import CallCost

NEVER = float("inf")
MAX_LINES = 256  # before empty ones are removed
_Place = tuple[float, int, LeaseRequest]
"""A request in a line, after its priority and the number of its arrival."""


class Decision(Enum):
    """What became of a request that was offered in `RequestQueue.serve`."""

    GRANTED = auto()
    BLOCKED = auto()
    """It waits, and holds back those of its kind that cost as much or more."""
    BLOCKED_KIND = auto()
    """It waits, and so do all others of its kind."""
    REFUSED = auto()
    """Nobody is served any more in this round."""


class RequestQueue:
    """The waiting requests. Those of one kind stand in one line, since the same keys can serve them.

    `serve` offers the requests in order of priority. A line whose first request cannot be served is left as a whole where
    possible, so that a round costs as much as there are kinds, not as there are requests.
    """

    def __init__(self) -> None:
        self.count = 0
        self._lines: dict[Kind, list[_Place]] = {}
        self._delayed: list[tuple[float, _Place]] = []  # a heap by `not_before`
        self._numbers = itertools.count()

    def add(self, request: LeaseRequest) -> bool:
        """Returns whether its kind may be a new one."""
        self.count += 1
        place = (request.priority, next(self._numbers), request)
        if request.not_before > request.requested_at:
            heapq.heappush(self._delayed, (request.not_before, place))
        elif (line := self._lines.get(request.kind)) is not None:
            insort(line, place)
            return False
        else:
            self._line_up(place)
        return True

    @property
    def next_delayed_at(self) -> float:
        return self._delayed[0][0] if self._delayed else NEVER

    def due(self, now: float) -> list[LeaseRequest]:
        """The requests that wait for nothing but a key, in order of priority."""
        places = list(itertools.chain.from_iterable(self._lines.values()))
        places += [place for at, place in self._delayed if at <= now]
        return [request for _, _, request in sorted(places)]

    def heads(self, now: float) -> list[LeaseRequest]:
        """The first request of each kind that waits for nothing but a key."""
        found = {place[2].kind: place[2] for at, place in self._delayed if at <= now}
        return list((found | {kind: line[0][2] for kind, line in self._lines.items() if line}).values())

    def any_due(self, now: float) -> bool:
        return self.count > len(self._delayed) or self.next_delayed_at <= now

    def line_length(self, kind: Kind) -> int:
        return len(self._lines.get(kind, ()))

    def end_delays_of(self, provider: str, now: float) -> None:
        """Ends the delay of all requests that may use this provider."""
        self._delayed = [
            (min(at, now) if provider in place[2].providers else at, place) for at, place in self._delayed
        ]
        heapq.heapify(self._delayed)

    def drop(self, holder: str) -> None:
        for kind, line in self._lines.items():
            self._lines[kind] = [place for place in line if place[2].holder != holder]
        self._delayed = [entry for entry in self._delayed if entry[1][2].holder != holder]
        heapq.heapify(self._delayed)
        self.count = sum(map(len, self._lines.values())) + len(self._delayed)

    def serve(self, now: float, decide: Callable[[LeaseRequest], Decision]) -> None:
        """Offers the requests that are due to `decide`, and removes those that it grants."""
        while self._delayed and self._delayed[0][0] <= now:
            self._line_up(heapq.heappop(self._delayed)[1])
        lines = [line for line in self._lines.values() if line]
        if len(lines) == 1 and len(lines[0]) == 1:  # the usual case
            if decide(lines[0][0][2]) is Decision.GRANTED:
                lines[0].clear()
                self.count -= 1
        else:
            self._serve_lines([_Line(line) for line in lines], decide)

    def _serve_lines(self, lines: "list[_Line]", decide: Callable[[LeaseRequest], Decision]) -> None:
        heads = [(line.places[0], line) for line in lines]  # by priority and arrival
        heapq.heapify(heads)
        while heads:
            place, line = heads[0]
            decision = decide(place[2])
            if decision is Decision.REFUSED:
                break
            upcoming = line.advance(decision)
            if upcoming is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (upcoming, line))
        for line in lines:
            self.count -= line.remove_granted()

    def _line_up(self, place: "_Place") -> None:
        kind = place[2].kind
        if (line := self._lines.get(kind)) is not None:
            insort(line, place)
            return
        if len(self._lines) >= MAX_LINES:
            self._lines = {name: line for name, line in self._lines.items() if line}
        self._lines[kind] = [place]


class _Line:
    """One line during a round: those before `position` were decided about, `passed` are the ones that still wait."""

    __slots__ = ("_blocked", "_granted", "passed", "places", "position")

    def __init__(self, places: list[_Place]) -> None:
        self.places = places
        self.position = 0
        self.passed: list[_Place] = []
        self._granted = 0
        self._blocked: list[CallCost] = []

    def advance(self, decision: Decision) -> _Place | None:
        """Notes the decision and returns the next place worth offering a key to; None if there is none."""
        if decision is Decision.BLOCKED_KIND:
            return None
        place = self.places[self.position]
        self.position += 1
        if decision is Decision.GRANTED:
            self._granted += 1
        else:
            self.passed.append(place)
            self._blocked.append(place[2].cost)
        while self.position < len(self.places):
            upcoming = self.places[self.position]
            if not self._blocked or not any(cost.within(upcoming[2].cost) for cost in self._blocked):
                return upcoming
            self.passed.append(upcoming)
            self.position += 1
        return None

    def remove_granted(self) -> int:
        """Takes the granted places out of the line and returns their number."""
        if self._granted:
            self.places[: self.position] = self.passed
        return self._granted
