"""How one provider counts, as far as it was found out: the same for all its keys."""

from dataclasses import dataclass
from enum import StrEnum

REFUSAL_TIME = 0.15
REFUSAL_TIMES = (0.05, 2.0)
# Hints are often whole seconds.
TOLERANCE = 1.0
MOST_PROBES = 2
GROWTHS = (1.04, 2.0)
FIRST_GROWTH = 1.25
PATIENCE = (16, 4096)
# Of what older measures have said.
FADING = 0.8
NEAR = (0.5, 2.0)


class Counting(StrEnum):
    """When, within a limit's time, what was spent stops to count."""

    SLIDING = "sliding"
    FIXED = "fixed"
    TOKEN_BUCKET = "token_bucket"  # noqa: S105 - an algorithm, not a secret


@dataclass(slots=True)
class ProviderProfile:
    """`counting` is None until it is known: then the strictest, a window that slides, is assumed.

    It shows in the first refusal that says when its limit opens; where limits are kept to and nothing is
    refused, in one call that is sent although a window that slides would be closed for long.
    """

    counting: Counting | None = None
    boundary: float = 0.0
    refused_count: bool = False
    refusal_time: float = REFUSAL_TIME
    growth: float = FIRST_GROWTH
    patience: int = PATIENCE[0]
    _off_by_calls: float = 0.0
    _off_by_tokens: float = 0.0
    _first_refused: int | None = None
    _since_try: int = 0
    _probes: int = 0
    _probed_at: float | None = None

    # How it counts.

    @property
    def may_probe(self) -> bool:
        return self.counting is None and self._probed_at is None and self._probes < MOST_PROBES

    def probe(self, now: float) -> None:
        self._probes += 1
        self._probed_at = now

    def admitted(self, sent_at: float) -> None:
        """An answer: if it is the probe's, the limit has filled up meanwhile."""
        if self._probed_at == sent_at:
            self._probed_at = None
            self.counting = self.counting or Counting.TOKEN_BUCKET

    def dropped(self, sent_at: float) -> None:
        """A call ended without saying anything."""
        if self._probed_at == sent_at:
            self._probed_at = None

    def refused_probe(self, sent_at: float) -> bool:
        """Refused without a word about the time: the strictest it is, if that was the probe."""
        if self._probed_at != sent_at:
            return False
        self.counting, self._probed_at = Counting.SLIDING, None
        return True

    def observe(self, opens_at: float, sliding: float, filling: float) -> None:
        """A refusal has named its end; the others are the ends by the ways of counting."""
        self._probed_at = None
        if opens_at >= sliding - TOLERANCE:
            self.counting = Counting.SLIDING
        elif opens_at <= filling + TOLERANCE:
            self.counting = Counting.TOKEN_BUCKET
        else:
            self.counting, self.boundary = Counting.FIXED, opens_at

    def mistaken(self) -> bool:
        """What was kept to was refused: from now on the strictest. True if that is news."""
        if self.counting is None or self.counting is Counting.SLIDING:
            return False
        self.counting = Counting.SLIDING
        return True

    def merge(self, counting: Counting, boundary: float) -> None:
        """What another run found out."""
        self.counting, self.boundary = counting, boundary

    # What it counts, where it names nothing.

    @property
    def counts_tokens(self) -> bool:
        """Whether its refusals are better explained by tokens than by calls; until they are, both may be."""
        return self._off_by_tokens < self._off_by_calls

    def weighed(self, by_calls: float, by_tokens: float) -> None:
        """Two measures of one bucket differ by so much, counted in the two ways."""
        self._off_by_calls = FADING * self._off_by_calls + by_calls
        self._off_by_tokens = FADING * self._off_by_tokens + by_tokens

    # How it refuses.

    def refusal_took(self, seconds: float) -> None:
        low, high = REFUSAL_TIMES
        self.refusal_time = min(high, max(low, 3 * seconds, 0.9 * self.refusal_time))

    def first_refused(self, calls: int) -> None:
        """A key of which nothing was known was refused after so many calls."""
        self._first_refused = calls

    def was_refused_near(self, calls: int) -> bool:
        """Whether another key was refused after about so many: then this one may be at its end too."""
        return self._first_refused is not None and (
            NEAR[0] * self._first_refused <= calls <= NEAR[1] * self._first_refused
        )

    # When an unknown rate may be tried faster: after so many calls of all keys that one refusal is few of them.

    def sent(self) -> None:
        self._since_try += 1

    @property
    def may_grow(self) -> bool:
        return self._since_try >= self.patience

    def tried(self) -> None:
        self._since_try = 0

    def grew(self) -> None:
        self.growth = min(GROWTHS[1], 1 + (self.growth - 1) * 2)

    def grew_too_far(self) -> None:
        self.growth = max(GROWTHS[0], 1 + (self.growth - 1) / 2)
        self.patience = min(self.patience * 2, PATIENCE[1])
