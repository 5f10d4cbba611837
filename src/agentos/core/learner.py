"""Finds a rate that nobody told: careful growth until refused, then a step back."""

from collections import deque
from dataclasses import dataclass, field

from agentos.core.loads import Rate
from agentos.core.manners import Manners

# So many calls may be under way of which it is not known yet whether they are refused.
UNCONFIRMED = 3
BELOW = 0.985
# An end that is put off by less is the same.
LATER = 0.05
SHORTEST_TRIAL = 4


@dataclass(slots=True)
class Learner:
    """A stretch begins when a rest is over and ends when the provider, having refused, would admit again.

    The calls admitted in it, over its length, are the rate that the provider keeps to. Sent evenly at
    that rate, calls pass token buckets, fixed and sliding windows alike.
    """

    manners: Manners = field(default_factory=Manners)
    per_second: float | None = None
    _recent: deque[float] = field(default_factory=deque)
    _confirmed: int = 0
    _began: float | None = None
    _stretches: int = 0
    _admitted: float = 0.0
    _seconds: float = 0.0
    _changed_at: float | None = None
    _before: float | None = None
    _hungry: bool = False

    @property
    def rate(self) -> Rate | None:
        return None if self.per_second is None else Rate(1.0, 1.0 / (BELOW * self.per_second))

    # While nothing is known.

    def may_send(self, now: float) -> bool:
        """Only so many at a time that, if one is refused, few others are."""
        if self.per_second is not None:
            return True
        self._confirm(now)
        return len(self._recent) < UNCONFIRMED

    def retry_at(self) -> float:
        """When the oldest call, not having been refused, can be taken for admitted."""
        return (self._recent[0] if self._recent else 0.0) + self.manners.refusal_time

    def sent(self, now: float) -> None:
        self._began = now if self._began is None else self._began
        self._confirm(now)
        self._recent.append(now)
        self.manners.sent()

    def answered(self, sent_at: float) -> None:
        if sent_at in self._recent:
            self._recent.remove(sent_at)
            self._confirmed += 1

    def _confirm(self, now: float) -> None:
        """A refusal comes back at once: what was not refused for so long was admitted."""
        while self._recent and self._recent[0] <= now - self.manners.refusal_time:
            self._recent.popleft()
            self._confirmed += 1

    # What a refusal tells.

    def refused(self, sent_at: float, hint: float, took: float) -> None:
        """`hint` is how long after its sending the provider would have admitted the call."""
        self.manners.refusal_took(took)
        admitted = self._confirmed + sum(1 for moment in self._recent if moment < sent_at)
        if admitted and self._began is not None:
            self._measure(admitted + self.manners.refused_count, sent_at + hint - self._began)
        elif not self.manners.refused_count:
            # The hint was obeyed in vain: it had not reckoned with the refused call itself.
            self.manners.refused_count = True
        elif self.per_second is not None:
            self.per_second *= 0.8
        self._begin_anew(sent_at + hint)

    def refused_again(self, opens_at: float) -> None:
        """A refusal beside the last one; if it puts off the end, refused calls count."""
        if self._began is None:
            return
        self.manners.refused_count = opens_at > self._began + LATER
        self._began = max(self._began, opens_at)

    def _begin_anew(self, at: float) -> None:
        self._recent.clear()
        self._confirmed, self._hungry = 0, False
        self._began = self._changed_at = at

    def _measure(self, admitted: int, seconds: float) -> None:
        """The first stretch holds what had been saved up before; later ones outweigh it."""
        self._stretches += 1
        keep = 0.0 if self._stretches <= 2 else 0.5
        self._admitted = keep * self._admitted + admitted
        self._seconds = keep * self._seconds + max(seconds, 0.001)
        found = self._admitted / self._seconds
        if self._before is None:
            self.per_second = found
            return
        self.per_second = max(self._before, min(found, self.per_second or found))
        self._before = None
        self.manners.grew_too_far()

    # Whether there is more.

    def waited(self) -> None:
        """Somebody had to wait for this rate: it is the bottleneck, and worth growing."""
        self._hungry = True

    def grow(self, now: float) -> bool:
        """Whether the rate is faster now: it was kept for a while, and somebody waits for more."""
        if self.per_second is None or not self._hungry or not self.manners.may_grow:
            return False
        if self._changed_at is None:
            self._changed_at = now
        if now - self._changed_at < SHORTEST_TRIAL / self.per_second:
            return False
        if self._before is not None:
            self.manners.grew()
        self._before, self.per_second = self.per_second, self.per_second * self.manners.growth
        self._changed_at, self._hungry = now, False
        self.manners.tried()
        return True

    def recall(self, per_second: float) -> None:
        """Another run has measured, or grown: its step is ours."""
        if self.per_second is not None and per_second < self.per_second:
            self._before = None
            self._recent.clear()
            self._confirmed, self._began = 0, None
        elif self.per_second is not None and per_second > self.per_second:
            self._before = self.per_second
            self.manners.tried()
        self.per_second = per_second
        self._changed_at, self._hungry = None, False
