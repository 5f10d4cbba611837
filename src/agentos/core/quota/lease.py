"""A wish for one call, and the right to it."""

from typing import NamedTuple

from agentos.core.quota.credentials import Credential
from agentos.core.ratelimit.limits import CallCost
from agentos.core.ratelimit.windows import Reservation

HEAD_START = 2.0


class LeaseRequest(NamedTuple):
    """A holder's wish for one call; it is not served before `not_before`.

    Each call that its item has behind it counts as if it had asked a little earlier, so that documents
    are finished rather than all half done; nobody starves by it.
    """

    holder: str
    call: str
    providers: tuple[str, ...]
    requested_at: float
    not_before: float = 0.0
    models: tuple[str, ...] = ()
    cost: CallCost = CallCost()
    calls_done: int = 0

    @property
    def priority(self) -> float:
        return self.requested_at - HEAD_START * self.calls_done

    @property
    def kind(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Wishes of one kind can be served by the same keys."""
        return (self.providers, self.models)

    def model(self, provider: str) -> str:
        return self.models[self.providers.index(provider)] if self.models else ""


class Lease(NamedTuple):
    """The right of one holder to one credential for one call."""

    id: str
    request: LeaseRequest
    credential: Credential
    granted_at: float
    reservation: Reservation
    model: str = ""
