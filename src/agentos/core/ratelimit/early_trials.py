"""Early trials: calls sent a little before a learned limit allows them, to find out how long its window really is."""

from dataclasses import dataclass, replace

from agentos.core.ratelimit.limit_evidence import ObservedRefusal
from agentos.core.ratelimit.limits import Counting, LearnedLimits
from agentos.core.ratelimit.provider_profile import ProviderProfile
from agentos.core.ratelimit.windows import Reservation

FIRST_EARLY_SHARE, MIN_EARLY_SHARE = 0.4, 0.06  # of a window's length, by which a trial may be early
EXACT_LENGTH = 6.0  # seconds; the length of a shorter window is not known exactly from hints in whole seconds
EARLY_INTERVAL, LATE_EARLY_INTERVAL = 6, 150  # calls of a key between two early trials
MAX_FOLLOWED = 8  # steps by which another key has shortened a length


@dataclass(slots=True)
class EarlyTrials:
    """Shortens windows whose length is a guess, step by step; one key tries it for all keys of the provider.

    Each refused trial halves the next step. If a call is refused that was not sent early, the last trial was admitted by
    chance, and the window returns to its earlier length.
    """

    profile: ProviderProfile
    call: Reservation | None = None
    """The trial in flight, not yet known to be admitted or refused."""
    previous: LearnedLimits | None = None
    """The limits before the last trial that was admitted, in case it was admitted by chance."""
    _calls_since: int = 0

    def is_due(self, learned: LearnedLimits, newest: ObservedRefusal | None) -> bool:
        """Whether a call may be sent a little earlier than these limits allow, because their length is a guess."""
        if self.call is not None or self.profile.is_trying_early or _is_exact(learned, newest):
            return False
        interval = EARLY_INTERVAL if self.share(learned) > MIN_EARLY_SHARE else LATE_EARLY_INTERVAL
        return self._calls_since >= interval

    def share(self, learned: LearnedLimits) -> float:
        """How early the next trial may be sent, as a share of the window's length."""
        return max(MIN_EARLY_SHARE, self.profile.early_shares.get(learned.lengths, FIRST_EARLY_SHARE))

    def record_send(self, call: Reservation) -> None:
        self._calls_since += 1
        if call.early:
            self.call, self._calls_since = call, 0
            self.profile.is_trying_early = True

    def end(self, call: Reservation) -> bool:
        """Note that the result of the call is known; return whether it was the trial."""
        if call is not self.call:
            return False
        self.call = None
        self.profile.is_trying_early = False
        return True

    def shortened(self, learned: LearnedLimits, early: float) -> LearnedLimits:
        """The limits after a trial that was sent this many seconds early was admitted."""
        share, self.previous = self.share(learned), learned
        shorter = _shortened(learned, early)
        self.profile.record_shortened(learned.lengths, early)
        self.profile.record_early_share(shorter.lengths, share)
        return shorter

    def follow(self, learned: LearnedLimits) -> LearnedLimits:
        """Adopt the length that another key has found for windows of the same length."""
        for _ in range(MAX_FOLLOWED):
            early = self.profile.shortened.get(learned.lengths)
            if not early:
                break
            self.previous, learned = learned, _shortened(learned, early)
        return learned

    def lengthened(self) -> LearnedLimits:
        """Return to the length before the last trial: it was admitted by chance."""
        assert self.previous is not None
        longer, self.previous = self.previous, None
        self.profile.record_shortened(longer.lengths, 0.0)
        self.halve_step(longer)
        return longer

    def halve_step(self, learned: LearnedLimits) -> None:
        self.profile.record_early_share(learned.lengths, self.share(learned) / 2)


def _shortened(learned: LearnedLimits, early: float) -> LearnedLimits:
    return replace(learned, limits=tuple(limit.shortened(early) for limit in learned.limits))


def _is_exact(learned: LearnedLimits, newest: ObservedRefusal | None) -> bool:
    """Whether the provider's hints show the length of the window precisely enough."""
    if newest is None or any(
        limit.counting is Counting.FIXED or limit.amount > 1 for limit in learned.limits
    ):
        # If the limit is several calls, an early one that is admitted may just mean that the limit is higher.
        return True
    if not newest.hinted:
        return False
    shortest = min((limit.length for limit in learned.limits), default=0.0)
    return not newest.is_rounded or shortest >= EXACT_LENGTH
