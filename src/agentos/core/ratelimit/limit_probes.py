"""Limit probes: when to send single calls after a refusal that does not say how long to wait."""

from dataclasses import dataclass

from agentos.core.ratelimit.provider_profile import FIRST_PROBE_GAP, ProviderProfile
from agentos.core.ratelimit.windows import USUAL_LENGTHS, slack_of

MIN_PROBE_GAP = 0.02  # seconds
PROBE_GAP_GROWTH = 1.5  # factor for each probe that was refused
MAX_GAP_GROWTHS = 50  # a gap has reached its maximum by then; a much larger power would overflow
MAX_PROBE_GAP = 60.0  # seconds
FOLLOWER_DELAY = 0.25  # seconds by which the other keys probe later, so that they learn from the first
# An opening sooner after a refusal than these is not tried: shares of the time since the limit was first used and of a
# gap, and seconds.
LEAST_SHARE, GAP_SHARE, MAX_LEAST_GAP = 0.2, 0.4, 2.0
MAX_BURST_SHARE = 0.2  # of a window's length: calls sent within it filled the window in one burst


@dataclass(slots=True)
class LimitProbes:
    """Schedules probes at growing intervals, at moments when a window of a usual length would open.

    A probe is also due as soon as another call of the key has ended, unless concurrency limits are ruled out.
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
        """Note a refused probe, which rules out windows that would have opened by then, for all keys of the provider."""
        self.refused += 1
        if in_flight < self.slots:
            self.profile.concurrency_ruled_out = True
        self.profile.shortest_window = max(self.profile.shortest_window, sent_at - started_at)
        self.slots = in_flight

    def end(self, admitted_at: float) -> None:
        """Note an admitted probe: the next probes start sooner if the limit opened sooner."""
        closed = admitted_at - self.closed_since
        self._gap = min(MAX_PROBE_GAP, max(MIN_PROBE_GAP, closed / 2))
        self.profile.first_probe_gap = min(self.profile.first_probe_gap, self._gap)
        self.refused = 0

    def next_at(self, refused_at: float, started_at: float, filled_at: float, in_flight: int) -> float:
        """When to send the next probe after the last refusal.

        The limit was used from `started_at` on. A window of tokens may have no room until all calls sent up to
        `filled_at` have left it.
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
        """The longest gap. After windows of a certain length, the next opening is not far off, unless it is overdue.

        A limit that stays closed for longer has changed, or another key of the same quota uses all of it.
        """
        if not self.last_length:
            return MAX_PROBE_GAP
        return min(MAX_PROBE_GAP, max(FIRST_PROBE_GAP, self.last_length / 4, closed / 4))
