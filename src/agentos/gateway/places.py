"""The places in the queue that calls keep after they were told to ask again."""

import hashlib
from collections import defaultdict
from collections.abc import Callable

from agentos.gateway.request_parser import ProxyRequest

KEPT_FOR = 120.0  # seconds after the moment at which the client may ask again
MAX_PLACES = 10_000


class Places:
    """Since when calls wait that come back later. A call is recognised by its token, its path and its body.

    No key is held for a call that is away; when it comes back, it stands before all that came after it. Two calls that are
    alike have two places.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)  # since when, kept until
        self._count = 0

    def keep(self, request: ProxyRequest, since: float, retry_after: float) -> None:
        if self._count >= MAX_PLACES:
            self._drop_expired()
        if self._count < MAX_PLACES:
            self._since[_identity(request)].append((since, self._clock() + retry_after + KEPT_FOR))
            self._count += 1

    def take(self, request: ProxyRequest) -> float | None:
        """Since when the request waits, if it was here before."""
        if not self._count:
            return None
        kept = self._since.pop(identity := _identity(request), [])
        self._count -= len(kept)
        valid = sorted(place for place in kept if place[1] > self._clock())
        if not valid:
            return None
        if valid[1:]:
            self._since[identity] = valid[1:]
            self._count += len(valid) - 1
        return valid[0][0]

    def _drop_expired(self) -> None:
        now = self._clock()
        for identity, kept in list(self._since.items()):
            self._since[identity] = [place for place in kept if place[1] > now]
            if not self._since[identity]:
                del self._since[identity]
        self._count = sum(map(len, self._since.values()))


def _identity(request: ProxyRequest) -> str:
    found = hashlib.sha256(f"{request.token}\n{request.path}\n".encode())
    found.update(request.body)
    return found.hexdigest()
