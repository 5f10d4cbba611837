"""Remembers which key an item's calls used last, so that later calls find what the provider keeps for that account."""

from collections.abc import Iterator

from agentos.core.quota.lease import Lease, LeaseRequest


class KeptKeys:
    """The key of the last call of each affinity, by model and by provider.

    A prompt cache belongs to an account and a model, so a call prefers the last key of its model. Files and stored
    responses belong to an account: a call without a model, and the first one of a model, prefer the last key of any.
    Pools that hand out the same keys for different purposes share one of these.
    """

    def __init__(self) -> None:
        self._names: dict[tuple[str, ...], str] = {}

    def names(self, request: LeaseRequest) -> Iterator[str]:
        """The keys that the request prefers, the best one first."""
        places = [*self._by_model(request), *((request.affinity, name) for name in request.providers)]
        for place in places if request.affinity else ():
            if name := self._names.get(place):
                yield name

    def keep(self, lease: Lease) -> None:
        for place in self._places(lease) if lease.request.affinity else ():
            self._names[place] = lease.credential.name

    def drop(self, lease: Lease) -> None:
        """Let the next request use any key, because the call of this lease failed."""
        for place in self._places(lease):
            if self._names.get(place) == lease.credential.name:
                del self._names[place]

    def _places(self, lease: Lease) -> list[tuple[str, ...]]:
        return [*self._by_model(lease.request), (lease.request.affinity, lease.credential.provider)]

    def _by_model(self, request: LeaseRequest) -> list[tuple[str, ...]]:
        return [(request.affinity, "", *request.models)] if any(request.models) else []
