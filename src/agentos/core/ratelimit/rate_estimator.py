"""Finds a rate that nobody told: careful growth until refused, then a step back."""

from collections import deque
from dataclasses import dataclass, field

from agentos.core.ratelimit.limits import Rate
from agentos.core.ratelimit.provider_profile import ProviderProfile

# So many calls may be under way of which it is not known yet whether they are refused.
UNCONFIRMED = 3
BELOW = 0.985
# An end that is put off by less is the same.
LATER = 0.05
SHORTEST_TRIAL = 4
# After so many stretches a rate that is refused, though nobody tried it faster, was measured too high.
SETTLED = 2
STEP_BACK = 0.88
# A hint that is worth so many calls, and so long, speaks of a window and not of a bucket that fills.
WINDOW_CALLS = 4
SHORTEST_WINDOW = 2.0
HALF = 0.5
REMEMBERED = 2000


@dataclass(slots=True)
class RateEstimator:
    """A stretch begins when a rest is over and ends when the provider, having refused, would admit again.

    The calls admitted in it, over its length, are the rate that the provider keeps to. Sent evenly at
    that rate, calls pass token buckets, fixed and sliding windows alike. Where the hints speak of a window,
    the first stretch that began with its opening tells its amount and its `window` seconds.
    """

    profile: ProviderProfile = field(default_factory=ProviderProfile)
    per_second: float | None = None
    window: float | None = None
    _recent: deque[float] = field(default_factory=deque)
    _confirmed: int = 0
    _began: float | None = None
    _intervals: int = 0
    _admitted: float = 0.0
    _seconds: float = 0.0
    _changed_at: float | None = None
    _before: float | None = None
    _is_bottleneck: bool = False
    _longest_hint: float = 0.0
    _opened: bool = False
    _slides: bool = False
    _sent: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    @property
    def rate(self) -> Rate | None:
        if self.per_second is None:
            return None
        if self.window is None:
            return Rate(1.0, 1.0 / (BELOW * self.per_second))
        return Rate(max(1.0, self.per_second * self.window // 1), self.window)

    # While nothing is known.

    def may_send(self, now: float) -> bool:
        """Only so many at a time that, if one is refused, few others are."""
        if self.per_second is not None:
            return True
        self._confirm(now)
        sent = self._confirmed + len(self._recent)
        careful = self.profile.was_refused_near(sent)
        return len(self._recent) < (1 if careful else UNCONFIRMED)

    def retry_at(self) -> float:
        """When the oldest call, not having been refused, can be taken for admitted."""
        return (self._recent[0] if self._recent else 0.0) + self.profile.refusal_time

    def sent(self, now: float) -> None:
        self._began = now if self._began is None else self._began
        self._confirm(now)
        self._recent.append(now)
        self._sent.append(now)
        self.profile.sent()

    def answered(self, sent_at: float) -> None:
        if sent_at in self._recent:
            self._recent.remove(sent_at)
            self._confirmed += 1

    def _confirm(self, now: float) -> None:
        """A refusal comes back at once: what was not refused for so long was admitted."""
        while self._recent and self._recent[0] <= now - self.profile.refusal_time:
            self._recent.popleft()
            self._confirmed += 1

    # What a refusal tells.

    def cancelled(self, sent_at: float) -> None:
        """A call was refused: it is none of those that were admitted."""
        if sent_at in self._sent:
            self._sent.remove(sent_at)

    def refused(self, sent_at: float, hint: float, took: float, told: bool) -> None:
        """`hint` is how long after its sending the provider would have admitted the call, if it `told`."""
        self.profile.refusal_took(took)
        self._longest_hint = max(self._longest_hint, hint)
        opens_at = sent_at + hint
        admitted = self._confirmed + sum(1 for moment in self._recent if moment < sent_at)
        if not self._opened:
            self.profile.first_refused(admitted)
        seconds = max(0.001, opens_at - self._began) if self._began is not None else 0.001
        if not (told and self._is_window(sent_at, hint, admitted / seconds)):
            # A fixed window, once open, is open for all of its calls.
            self._slides = self._slides or self._opened
            self.window = None
            self._refused_evenly(admitted, seconds)
        elif self.window is not None:
            self._found_window(self._sent_within(opens_at - self.window, sent_at), self.window)
        elif self._opened:
            self._found_window(admitted, seconds)
        else:
            # What the first stretch began with is not known: the next one is measured from its opening on.
            self.per_second = None
        self._restart(opens_at)

    def _is_window(self, sent_at: float, hint: float, rate: float) -> bool:
        if self._slides:
            return False
        if self.window is None or self.per_second is None:
            return hint >= SHORTEST_WINDOW and hint * rate >= WINDOW_CALLS
        within = self._sent_within(sent_at + hint - self.window, sent_at)
        return hint <= 1.1 * self.window and within >= HALF * self.per_second * self.window

    def _sent_within(self, start: float, end: float) -> int:
        return sum(start < moment < end for moment in self._sent)

    def _found_window(self, admitted: int, seconds: float) -> None:
        self.per_second, self.window = max(admitted, 1) / seconds, seconds
        if self._before is not None:
            self.per_second = max(self._before, self.per_second)
            self._before = None
            self.profile.grew_too_far()

    def _refused_evenly(self, admitted: int, seconds: float) -> None:
        if admitted:
            self._measure(admitted + self.profile.refused_count, seconds)
        elif not self.profile.refused_count:
            # The hint was obeyed in vain: it had not reckoned with the refused call itself.
            self.profile.refused_count = True
        elif self.per_second is not None:
            self.per_second *= 0.8

    def refused_again(self, opens_at: float) -> None:
        """A refusal beside the last one; if it puts off the end, refused calls count."""
        if self._began is None:
            return
        self.profile.refused_count = opens_at > self._began + LATER
        self._began = max(self._began, opens_at)

    def _restart(self, at: float) -> None:
        self._recent.clear()
        self._confirmed, self._is_bottleneck = 0, False
        self._began = self._changed_at = at
        self._opened = True

    def _measure(self, admitted: int, seconds: float) -> None:
        """The first stretch holds what had been saved up before; later ones outweigh it."""
        self._intervals += 1
        keep = 0.0 if self._intervals <= 2 else 0.5
        self._admitted = keep * self._admitted + admitted
        self._seconds = keep * self._seconds + max(seconds, 0.001)
        found = self._admitted / self._seconds
        if self._before is None:
            if self._intervals > SETTLED and self.per_second is not None:
                found = min(found, STEP_BACK * self.per_second)
            self.per_second = found
            return
        self.per_second = max(self._before, min(found, self.per_second or found))
        self._before = None
        self.profile.grew_too_far()

    # Whether there is more.

    def waited(self) -> None:
        """Somebody had to wait for this rate: it is the bottleneck, and worth growing."""
        self._is_bottleneck = True

    def grow(self, now: float) -> bool:
        """Whether the rate is faster now: it was kept for a while, and somebody waits for more."""
        if self.per_second is None or not self._is_bottleneck or not self.profile.may_grow:
            return False
        if self._changed_at is None:
            self._changed_at = now
        # In less time than the provider's own, a faster rate that is not refused proves nothing.
        if now - self._changed_at < max(self._longest_hint, SHORTEST_TRIAL / self.per_second):
            return False
        if self._before is not None:
            self.profile.grew()
        self._before, self.per_second = self.per_second, self.per_second * self.profile.growth
        self._changed_at, self._is_bottleneck = now, False
        self.profile.tried()
        return True

    def merge(self, per_second: float, window: float | None = None) -> None:
        """Another run has measured, or grown: its step is ours."""
        if self.per_second is not None and per_second < self.per_second:
            if self._before is not None:
                self.profile.grew_too_far()
            self._before = None
            self._recent.clear()
            self._confirmed, self._began = 0, None
        elif self.per_second is not None and per_second > self.per_second:
            self._before = self.per_second
            self.profile.tried()
        self.per_second, self.window = per_second, window
        self._changed_at, self._is_bottleneck = None, False
