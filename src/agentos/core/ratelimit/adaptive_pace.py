"""Adaptive pace: the rate at which calls are evenly spaced when no limit explains what a provider refuses."""

from dataclasses import dataclass

PACE_GROWTH, MAX_PACE_GROWTH = 1.03, 1.25  # factors; the growth is doubled as long as nothing is refused
UNTRIED_PACE_GROWTH = 1.12  # factor until a call is refused for the first time
MIN_PACE_GROWTH = 1.008  # factor while calls are always refused at about the same pace
NEAR_CEILING, BELOW_CEILING = 1.12, 0.9  # factors within which two paces are about the same
CALLS_PER_GROWTH, CALLS_NEAR_CEILING = 12, 24
PACE_STEP_BACK = 0.93  # factor after a refusal
KNOWN_STEP_BACK = 0.96  # factor after a refusal that follows another one, at about the same pace
GROWTHS_BACK = 3  # steps of growth to undo after a refusal at a known ceiling


@dataclass(slots=True)
class AdaptivePace:
    """Raises the pace until a call is refused, steps back, and approaches that ceiling in ever smaller steps.

    Evenly spaced calls pass every limiter. If a refusal follows another one after only a few calls, the pace was far too
    high, and it steps back further.
    """

    per_second: float
    growth: float = UNTRIED_PACE_GROWTH
    ceiling: float = 0.0
    """The pace at which a call was last refused."""
    _base_growth: float = PACE_GROWTH
    _refused_at: float = float("-inf")
    _admitted: int = 0
    """Calls since the last refusal."""
    _admitted_at_pace: int = 0

    def record_admission(self) -> bool:
        """Return whether the pace has changed."""
        self._admitted += 1
        self._admitted_at_pace += 1
        is_near = BELOW_CEILING * self.per_second < self.ceiling < NEAR_CEILING * self.per_second
        if self._admitted_at_pace < (CALLS_NEAR_CEILING if is_near else CALLS_PER_GROWTH):
            return False
        self._set(self.growth * self.per_second)
        if self.per_second > NEAR_CEILING * self.ceiling:
            self.growth = min(MAX_PACE_GROWTH, 1 + 2 * (self.growth - 1))
        return True

    def record_refusal(self, sent_at: float, now: float) -> bool:
        """Return whether the pace has changed. Calls that were sent before the last refusal arrived do not change it."""
        if sent_at <= self._refused_at:
            return False
        is_known = self.ceiling / NEAR_CEILING < self.per_second < NEAR_CEILING * self.ceiling
        self._base_growth = max(MIN_PACE_GROWTH, 1 + (self._base_growth - 1) / 2) if is_known else PACE_GROWTH
        if self._admitted < CALLS_NEAR_CEILING:
            step_back = KNOWN_STEP_BACK if is_known else PACE_STEP_BACK**2
        else:
            step_back = (
                max(PACE_STEP_BACK, 1 - GROWTHS_BACK * (self._base_growth - 1))
                if is_known
                else PACE_STEP_BACK
            )
        self._refused_at, self.growth, self.ceiling = now, self._base_growth, self.per_second
        self._admitted = 0
        self._set(step_back * self.per_second)
        return True

    def _set(self, per_second: float) -> None:
        self.per_second, self._admitted_at_pace = per_second, 0
