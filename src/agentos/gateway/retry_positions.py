"""Keeps the queue positions of calls that were told to retry later."""

import hashlib
from collections import defaultdict
from collections.abc import Callable

from agentos.gateway.request_parser import ProxyRequest

POSITION_TTL = 120.0  # seconds after the client may ask again
MAX_POSITIONS = 10_000


class RetryPositions:
    """The arrival times of calls that were told to retry later. A retried call is identified by its token, path and body.

    No key is reserved until the call is retried; the retry then queues by its original arrival time. Identical calls each
    keep a position of their own.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)  # since when, kept until
        self._count = 0

    def keep(self, request: ProxyRequest, since: float, retry_after: float) -> None:
        if self._count >= MAX_POSITIONS:
            self._drop_expired()
        if self._count < MAX_POSITIONS:
            self._since[_identity(request)].append((since, self._clock() + retry_after + POSITION_TTL))
            self._count += 1

    def take(self, request: ProxyRequest) -> float | None:
        """When the request first arrived, if this is a retry."""
        if not self._count:
            return None
        kept = self._since.pop(identity := _identity(request), [])
        self._count -= len(kept)
        valid = sorted(position for position in kept if position[1] > self._clock())
        if not valid:
            return None
        if valid[1:]:
            self._since[identity] = valid[1:]
            self._count += len(valid) - 1
        return valid[0][0]

    def _drop_expired(self) -> None:
        now = self._clock()
        for identity, kept in list(self._since.items()):
            self._since[identity] = [position for position in kept if position[1] > now]
            if not self._since[identity]:
                del self._since[identity]
        self._count = sum(map(len, self._since.values()))


def _identity(request: ProxyRequest) -> str:
    digest = hashlib.sha256(f"{request.token}\n{request.path}\n".encode())
    digest.update(request.body)
    return digest.hexdigest()
