"""How long a bucket rests after its provider refused."""

from dataclasses import dataclass

from agentos.core.ratelimit.refusals import LONGEST_HINT, clamp_hint

PROBE_EVERY = 3600.0
PROVING = 0.25
# A hint of 0 s would stay 0 however often it is doubled.
SHORTEST_DOUBLED = 0.5


@dataclass(slots=True)
class Cooldown:
    """Until when nothing is sent; for a spent day, when one call may look again."""

    until: float = 0.0
    spent_until: float = 0.0
    probe_at: float = 0.0
    consecutive_refusals: int = 0
    probation_until: float | None = None
    sent: int = 0
    refused_at: float = float("-inf")
    reason: str = ""

    def limit(self, now: float, hint: float | None, reason: str) -> float:
        """Starts or lengthens the rest; a hint that was obeyed in vain counts double each time."""
        if not self.limited(now):
            self.consecutive_refusals = self.consecutive_refusals + 1 if self.sent <= 1 else 1
        self.sent, self.probation_until = 0, None
        seconds = clamp_hint(hint)
        if self.consecutive_refusals > 1:
            seconds = max(seconds, SHORTEST_DOUBLED) * 2 ** min(self.consecutive_refusals - 1, 12)
        seconds = min(seconds, LONGEST_HINT)
        self.until = max(self.until, now + seconds)
        self.refused_at, self.reason = now, reason
        return self.until - now

    def spend(self, now: float, day: float, reason: str) -> float:
        """The day's quota is over; one call an hour may look whether that was true."""
        self.spent_until = max(self.spent_until, now + day)
        self.probe_at = now + PROBE_EVERY
        self.refused_at, self.reason = now, reason
        return self.spent_until - now

    def served(self, granted_at: float) -> bool:
        """A call went through; if it was sent after the last refusal, the rest is over."""
        if granted_at < self.refused_at:
            return False
        was_spent = bool(self.spent_until)
        self.clear()
        return was_spent

    def clear(self) -> None:
        self.until = self.spent_until = self.probe_at = 0.0
        self.consecutive_refusals, self.probation_until = 0, None

    def merge(self, until: float, spent_until: float, reason: str, at: float) -> None:
        """What another run was told, and when; the later of two ends wins."""
        self.until, self.reason = max(self.until, until), reason
        self.refused_at = max(self.refused_at, at)
        if spent_until > self.spent_until:
            self.spent_until, self.probe_at = spent_until, max(self.probe_at, spent_until)

    def probed(self, now: float) -> None:
        self.probe_at = now + PROBE_EVERY

    def probe_started(self, now: float) -> None:
        """The first call after a rest goes alone: only when it was not refused do others follow."""
        self.sent += 1
        if self.sent == 1 and self.consecutive_refusals:
            self.probation_until = now + PROVING

    def limited(self, now: float) -> bool:
        return now < self.until

    def spent(self, now: float) -> bool:
        return now < self.spent_until

    def over(self, now: float) -> bool:
        """Whether nothing of it is left to be waited for."""
        return now >= self.until and now >= self.spent_until and now >= (self.probation_until or 0.0)

    def closed(self, now: float) -> bool:
        """Whether no call may be sent now."""
        proving = self.probation_until is not None and now < self.probation_until
        return proving or self.limited(now) or (self.spent(now) and now < self.probe_at)

    def back_at(self) -> float:
        """When it can be counted on again: an hourly look at a spent day is luck."""
        return max(self.until, self.spent_until)

    def opens_at(self) -> float:
        if not self.consecutive_refusals and not self.spent_until:
            return self.until
        return max(self.until, self.probation_until or 0.0, min(self.spent_until, self.probe_at))
