"""Unconfirmed calls: calls that are not yet known to be admitted by the provider."""

from collections import deque
from dataclasses import dataclass, field

from agentos.core.ratelimit.provider_profile import ProviderProfile
from agentos.core.ratelimit.windows import Reservation

# How many calls may be unconfirmed before the first refusal: at least the first number. Otherwise the second, plus the square
# of the number of admitted calls divided by the third, but at most one per admitted call.
FIRST_UNCONFIRMED, GROWING_UNCONFIRMED, SQUARE_PER_UNCONFIRMED = 3, 2, 16
# After it: a base, plus one for every 16 admitted calls.
LATER_UNCONFIRMED, LATER_CALLS_PER_UNCONFIRMED = 1, 16
UNSURE_UNCONFIRMED = 2  # the base while obeying learned limits that no provider hint has confirmed


@dataclass(slots=True)
class UnconfirmedCalls:
    """Caps the unconfirmed calls of a bucket, so that few are refused at the same time.

    A call is confirmed when it is answered, or when it has been in flight for longer than a refusal takes. The more calls
    were confirmed, the more may be unconfirmed. One key of a provider explores ahead of the others.
    """

    profile: ProviderProfile
    confirmed: int = 0
    """Calls confirmed since the limits were last explored, or changed."""
    has_refused: bool = False
    _calls: deque[Reservation] = field(default_factory=deque)

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: Reservation) -> None:
        self._calls.append(call)

    def remove(self, call: Reservation) -> bool:
        """Return whether the call was unconfirmed until now."""
        if call not in self._calls:
            return False
        self._calls.remove(call)
        return True

    def next_confirmed(self, now: float) -> Reservation | None:
        """Remove and return the next call that has gone unrefused for long enough."""
        if self._calls and self._calls[0].at <= now - self.profile.refusal_latency:
            return self._calls.popleft()
        return None

    @property
    def confirmed_at(self) -> float:
        """When the oldest call will count as admitted."""
        return self._calls[0].at + self.profile.refusal_latency

    def record_admission(self, owner: int) -> None:
        self.confirmed += 1
        if not self.has_refused and self.confirmed > self.profile.most_admitted:
            self.profile.most_admitted, self.profile.leader = self.confirmed, owner

    def record_refusal(self, call: Reservation, owner: int) -> None:
        self.remove(call)
        if not self.has_refused:
            self.profile.record_first_refusal(self.confirmed + len(self._calls))
            self.has_refused = True
        if self.profile.leader == owner:
            self.profile.leader = 0

    def cap_while_unsure(self) -> int:
        """How many calls may be unconfirmed while obeying limits that no hint has confirmed."""
        return UNSURE_UNCONFIRMED + self.confirmed // LATER_CALLS_PER_UNCONFIRMED

    def cap_while_exploring(self, in_flight: int, owner: int) -> int:
        slots = self.profile.fewest_slots()
        if slots is not None and in_flight >= slots:
            return 1
        if self.has_refused:
            return LATER_UNCONFIRMED + self.confirmed // LATER_CALLS_PER_UNCONFIRMED
        ahead = self.profile.most_admitted - self.confirmed
        if ahead > 0:
            return ahead
        if self.profile.leader not in (0, owner) or self.profile.is_refusal_likely(
            self.confirmed + len(self._calls)
        ):
            return 1
        self.profile.leader = owner
        # What is known of the other keys' limits says nothing about how much further this one goes.
        further = max(0, self.confirmed - self.profile.refused_by_now)
        growth = min(further, further**2 // SQUARE_PER_UNCONFIRMED)
        return max(FIRST_UNCONFIRMED, GROWING_UNCONFIRMED + growth)
