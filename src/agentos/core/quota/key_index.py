"""Key index: the keys of a large pool, ordered by when they open, so that a decision need not look at every key."""

import heapq
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agentos.core.quota.keys import Key
from agentos.core.quota.lease import Kind, LeaseRequest
from agentos.core.ratelimit.limits import CallCost

INDEXED_KEYS = 64  # of one provider; checking fewer one by one is faster
REFRESH_INTERVAL = 0.25  # seconds between two checks of all keys after new findings about their provider
SIGNIFICANT_BITS = 3  # of a call's size: calls that differ by less than an eighth share a lane
MAX_PASSED = 200  # keys tried for one decision
RETRY_INTERVAL = 0.05  # seconds until others are tried after that
NEVER = float("inf")
_Entry = tuple[float, int, Key]
"""An entry of a heap: the value that orders it, a number that shows whether it is the key's latest entry, the key."""
OpensAt = Callable[[Key, LeaseRequest, float], float]
"""When a key may serve a request; infinite if something has to happen first."""


@dataclass(slots=True)
class Pick:
    """The key that may serve a request now, or the time at which the first one may."""

    key: Key | None
    next_at: float = NEVER


class KeyIndex:
    """The keys of one provider, in lanes: one lane per model and size of call.

    A lane remembers when each key opens. That time is a lower bound until something happens to the key or its bucket.
    The owner reports this with `touch`, and the key is evaluated again when the lane is next used. Whatever the keys of
    a provider learn from one another changes the `revision`; then all keys are evaluated again, but at most once per
    REFRESH_INTERVAL.
    """

    def __init__(self, keys: Iterable[Key], opens_at: OpensAt, allowed_at: OpensAt) -> None:
        """`opens_at` considers the key and its bucket only, `allowed_at` also the provider's circuit breaker."""
        self._keys = list(keys)
        self._opens_at = opens_at
        self._allowed_at = allowed_at
        self._lanes: dict[tuple[Kind, CallCost], _Lane] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def touch(self, key: Key) -> None:
        for name, lane in list(self._lanes.items()):
            lane.touched[key.credential.name] = key
            if len(lane.touched) > len(self._keys) // 2:
                # The lane has not been used for a long time: rebuilding it costs less.
                del self._lanes[name]

    def pick(self, request: LeaseRequest, now: float, revision: object) -> Pick:
        """Return the least recently used key that may serve the request now, or when the first key opens."""
        lane = self._lane(request)
        self._refresh(lane, now, revision)
        passed: list[tuple[_Entry, float]] = []
        pick = Pick(None)
        if lane.revision != revision:
            pick.next_at = lane.refreshed_at + REFRESH_INTERVAL
        while lane.ready:
            entry = lane.ready[0]
            if lane.is_current(entry):
                at = self._allowed_at(entry[2], request, now)
                if at <= now:
                    pick.key = entry[2]
                    break
                # Open only for smaller calls of this lane, or held back by a circuit breaker, like all others.
                passed.append((entry, at))
                pick.next_at = min(pick.next_at, at)
                if len(passed) >= MAX_PASSED:
                    pick.next_at = min(pick.next_at, now + RETRY_INTERVAL)
                    heapq.heappop(lane.ready)
                    break
            heapq.heappop(lane.ready)
        for entry, at in passed:
            if len(passed) >= MAX_PASSED:
                # Set it aside for a moment, so that the next decision tries other keys.
                lane.put(entry[2], min(at, now + RETRY_INTERVAL), now)
            else:
                heapq.heappush(lane.ready, entry)
        pick.next_at = min(pick.next_at, lane.opens_at())
        return pick

    def _lane(self, request: LeaseRequest) -> "_Lane":
        name = (request.kind, _rounded(request.cost))
        if name not in self._lanes:
            lane = _Lane(request._replace(cost=name[1]))
            lane.touched = {key.credential.name: key for key in self._keys}
            self._lanes[name] = lane
        return self._lanes[name]

    def _refresh(self, lane: "_Lane", now: float, revision: object) -> None:
        if revision != lane.revision and now >= lane.refreshed_at + REFRESH_INTERVAL:
            lane.touched = {key.credential.name: key for key in self._keys}
            lane.revision, lane.refreshed_at = revision, now
        if lane.touched:
            for key in lane.touched.values():
                lane.put(key, self._opens_at(key, lane.request, now), now)
            lane.touched = {}
        for key in lane.due(now):
            lane.put(key, self._opens_at(key, lane.request, now), now)


class _Lane:
    """The keys as seen by calls to one model and of about one size; `request` is the smallest such call."""

    def __init__(self, request: LeaseRequest) -> None:
        self.request = request
        self.touched: dict[str, Key] = {}
        self.ready: list[_Entry] = []  # a heap by last use
        self.revision: object = None
        self.refreshed_at = -NEVER
        self._closed: list[_Entry] = []  # a heap by opening
        self._latest: dict[str, int] = {}
        self._numbers = itertools.count()

    def put(self, key: Key, at: float, now: float) -> None:
        number = self._latest[key.credential.name] = next(self._numbers)
        if at <= now:
            heapq.heappush(self.ready, (key.last_used, number, key))
        elif at < NEVER:
            heapq.heappush(self._closed, (at, number, key))

    def is_current(self, entry: _Entry) -> bool:
        return self._latest.get(entry[2].credential.name) == entry[1]

    def due(self, now: float) -> list[Key]:
        """Remove and return the keys that were expected to open by now."""
        found = []
        while self._closed and self._closed[0][0] <= now:
            entry = heapq.heappop(self._closed)
            if self.is_current(entry):
                found.append(entry[2])
        return found

    def opens_at(self) -> float:
        while self._closed and not self.is_current(self._closed[0]):
            heapq.heappop(self._closed)
        return self._closed[0][0] if self._closed else NEVER


def _rounded(cost: CallCost) -> CallCost:
    """The smallest cost of the lane that a call of this cost belongs to."""
    return CallCost(_round_down(cost.input_tokens), _round_down(cost.output_tokens))


def _round_down(tokens: int) -> int:
    dropped = max(0, tokens.bit_length() - SIGNIFICANT_BITS)
    return tokens >> dropped << dropped
