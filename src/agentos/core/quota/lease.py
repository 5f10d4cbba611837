"""Lease and lease request: the right to use one key for one call, and the request for that right."""

from typing import NamedTuple

from agentos.core.protocol.commands import GrantLease
from agentos.core.quota.credentials import Credential
from agentos.core.ratelimit.limits import CallCost
from agentos.core.ratelimit.windows import Reservation

HEAD_START = 2.0  # seconds of priority for each call that an item has finished


Kind = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
"""Providers, models and excluded keys of a request: those of one kind can be served by the same keys."""


class LeaseRequest(NamedTuple):
    """A holder's request for one call, to be granted not before `not_before`.

    `providers` are in order of preference, with the model for each at the same position in `models`. Requests are
    served in order of `priority`: the time of the request, minus a head start for every call that the item has
    finished, so that items get finished instead of all being half done. The head start has no upper bound: an item
    that finishes more than one call every HEAD_START seconds stays ahead of a new one until it ends.
    Requests with the same `affinity` prefer the key that the last one of them got. `excluded` names the keys that have refused
    this very call.
    """

    holder: str
    call: str
    providers: tuple[str, ...]
    requested_at: float
    not_before: float = 0.0
    models: tuple[str, ...] = ()
    cost: CallCost = CallCost()
    calls_done: int = 0
    affinity: str = ""
    excluded: tuple[str, ...] = ()

    @property
    def priority(self) -> float:
        return self.requested_at - HEAD_START * self.calls_done

    @property
    def kind(self) -> Kind:
        return (self.providers, self.models, self.excluded)

    def model_for(self, credential: Credential) -> str:
        if credential.model or not self.models:
            return credential.model or ""
        return self.models[self.providers.index(credential.provider)]


class Lease(NamedTuple):
    """The right of one holder to use one credential for one call.

    It ends when the holder returns it, or when the holder is dropped from the pool.
    """

    id: str
    request: LeaseRequest
    credential: Credential
    granted_at: float
    reservation: Reservation
    model: str = ""

    def grant_command(self, answers: int = 0) -> GrantLease:
        """Return the command that carries the key to the holder. `answers`: how many calls the provider has answered."""
        credential = self.credential
        return GrantLease(
            item=self.request.holder,
            call=self.request.call,
            lease=self.id,
            key=credential.name,
            provider=credential.provider,
            secret=credential.secret,
            base_url=credential.base_url,
            model=self.model or None,
            call_timeout=credential.call_timeout,
            answers=answers,
        )
