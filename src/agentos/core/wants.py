"""A wish for one call, and the right to it."""

from typing import NamedTuple

from agentos.core.bookings import Booking
from agentos.core.credentials import Credential
from agentos.core.loads import Load

HEAD_START = 2.0


class Want(NamedTuple):
    """A holder's wish for one call; it is not served before `not_before`.

    Each call that its item has behind it counts as if it had asked a little earlier, so that documents
    are finished rather than all half done; nobody starves by it.
    """

    holder: str
    call: str
    providers: tuple[str, ...]
    asked_at: float
    not_before: float = 0.0
    models: tuple[str, ...] = ()
    load: Load = Load()
    behind: int = 0

    @property
    def turn(self) -> float:
        return self.asked_at - HEAD_START * self.behind

    @property
    def kind(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Wishes of one kind can be served by the same keys."""
        return (self.providers, self.models)

    def model(self, provider: str) -> str:
        return self.models[self.providers.index(provider)] if self.models else ""


class Lease(NamedTuple):
    """The right of one holder to one credential for one call."""

    id: str
    want: Want
    credential: Credential
    granted_at: float
    booking: Booking
    model: str = ""
