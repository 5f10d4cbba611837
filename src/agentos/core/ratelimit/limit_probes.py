"""Limit probes: when to send single calls after a refusal that does not say how long to wait."""

from dataclasses import dataclass

from agentos.core.ratelimit.provider_profile import FIRST_PROBE_GAP, ProviderProfile
from agentos.core.ratelimit.window_lengths import USUAL_LENGTHS
from agentos.core.ratelimit.windows import slack_of

MIN_PROBE_GAP = 0.02  # seconds
PROBE_GAP_GROWTH = 1.5  # factor for each probe that was refused
MAX_GAP_GROWTHS = 50  # by then a gap has its greatest length; a much larger power would overflow
MAX_PROBE_GAP = 60.0  # seconds
FOLLOWER_DELAY = 0.25  # seconds by which the other keys probe later, so that they learn from the first
LEAST_SHARE = (
    0.2  # of the time since the limit was first used: no usual length that is further off is left out
)
MAX_BURST_SHARE = 0.2  # of a window's length, in which the calls that have filled it were sent
GAP_SHARE, MAX_LEAST_GAP = (
    0.4,
    2.0,
)  # of a gap, seconds: an opening that comes sooner after a refusal is not tried


@dataclass(slots=True)
class LimitProbes:
    """Schedules probes at growing intervals, at moments when a window of a usual length would open.

    A probe is due as soon as another call of the key has ended, too, unless limits of concurrency are ruled out.
    """

    profile: ProviderProfile
    refused: int = 0
    closed_since: float = 0.0
    slots: int = 0
    """Calls in flight at the last refusal: with fewer, a probe is due at once, unless concurrency is ruled out."""
    last_length: float = 0.0
    """The longest window of the limits learned last."""
    _gap: float = 0.0

    def start(self, refused_at: float, in_flight: int) -> None:
        self.closed_since, self.slots = refused_at, in_flight

    def record_refusal(self, sent_at: float, started_at: float, in_flight: int) -> None:
        """A probe was refused: windows that would have opened by then are ruled out for all keys of the provider."""
        self.refused += 1
        if in_flight < self.slots:
            self.profile.concurrency_ruled_out = True
        self.profile.shortest_window = max(self.profile.shortest_window, sent_at - started_at)
        self.slots = in_flight

    def end(self, admitted_at: float) -> None:
        """A probe was admitted: the next ones start sooner if the limit opened sooner."""
        closed = admitted_at - self.closed_since
        self._gap = min(MAX_PROBE_GAP, max(MIN_PROBE_GAP, closed / 2))
        self.profile.first_probe_gap = min(self.profile.first_probe_gap, self._gap)
        self.refused = 0

    def next_at(self, refused_at: float, started_at: float, filled_at: float, in_flight: int) -> float:
        """When to send the next probe after the last refusal.

        The limit was used from `started_at` on. Of tokens, a window may have no room before the calls sent until
        `filled_at` have left it, too.
        """
        if in_flight < self.slots and not self.profile.concurrency_ruled_out:
            return 0.0
        first_gap = self._gap or self.profile.first_probe_gap
        longest = self._max_gap(refused_at - self.closed_since)
        gap = min(longest, first_gap * PROBE_GAP_GROWTH ** min(self.refused, MAX_GAP_GROWTHS))
        delay = FOLLOWER_DELAY if self.profile.shortest_window > refused_at - started_at else 0.0
        least = max(LEAST_SHARE * (refused_at - started_at), min(GAP_SHARE * gap, MAX_LEAST_GAP))
        for seconds in USUAL_LENGTHS:
            is_burst = filled_at - started_at <= MAX_BURST_SHARE * seconds
            opens = (filled_at if is_burst else started_at) + seconds + slack_of(seconds)
            if seconds > self.profile.shortest_window and refused_at + least <= opens <= refused_at + 2 * gap:
                return opens + delay
        return refused_at + gap

    def _max_gap(self, closed: float) -> float:
        """Where windows of a certain length were found before, the next one cannot be far, unless that is over already.

        A limit that stays closed for longer has changed, or another key of the same quota uses all of it up.
        """
        if not self.last_length:
            return MAX_PROBE_GAP
        return min(MAX_PROBE_GAP, max(FIRST_PROBE_GAP, self.last_length / 4, closed / 4))
