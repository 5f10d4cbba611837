"""How long a bucket rests after its provider refused."""

from dataclasses import dataclass

from agentos.core.refusals import LONGEST_HINT, clamp_hint

PROBE_EVERY = 3600.0
# A hint of 0 s would stay 0 however often it is doubled.
SHORTEST_DOUBLED = 0.5


@dataclass(slots=True)
class Rest:
    """Until when nothing is sent; for a spent day, when one call may look again."""

    until: float = 0.0
    spent_until: float = 0.0
    probe_at: float = 0.0
    strikes: int = 0
    refused_at: float = float("-inf")
    reason: str = ""

    def limit(self, now: float, hint: float | None, reason: str) -> float:
        """Starts or lengthens the rest; a hint that was obeyed in vain counts double each time."""
        if not self.limited(now):
            self.strikes += 1
        seconds = clamp_hint(hint)
        if self.strikes > 1:
            seconds = max(seconds, SHORTEST_DOUBLED) * 2 ** min(self.strikes - 1, 12)
        seconds = min(seconds, LONGEST_HINT)
        self.until = max(self.until, now + seconds)
        self.refused_at, self.reason = now, reason
        return self.until - now

    def spend(self, now: float, hint: float | None, day: float, reason: str) -> float:
        """The day's quota is over; the hint may be too good to be true, so it allows one look."""
        first = now >= self.spent_until
        self.spent_until = max(self.spent_until, now + day)
        self.probe_at = now + (clamp_hint(hint) if first and hint is not None else PROBE_EVERY)
        self.refused_at, self.reason = now, reason
        return self.spent_until - now

    def served(self, granted_at: float) -> bool:
        """A call went through; if it was sent after the last refusal, the rest is over."""
        if granted_at < self.refused_at:
            return False
        was_spent = bool(self.spent_until)
        self.until = self.spent_until = self.probe_at = 0.0
        self.strikes = 0
        return was_spent

    def probed(self, now: float) -> None:
        self.probe_at = now + PROBE_EVERY

    def limited(self, now: float) -> bool:
        return now < self.until

    def spent(self, now: float) -> bool:
        return now < self.spent_until

    def closed(self, now: float) -> bool:
        """Whether no call may be sent now."""
        return self.limited(now) or (self.spent(now) and now < self.probe_at)

    def opens_at(self) -> float:
        return max(self.until, min(self.spent_until, self.probe_at))
