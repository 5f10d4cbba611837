"""Known windows: usage counted against limits that a person configured or the provider stated."""

from collections.abc import Iterable
from dataclasses import replace

from agentos.core.ratelimit.limits import CallCost, Counting, Dimension, Rate
from agentos.core.ratelimit.provider_profile import ProviderProfile
from agentos.core.ratelimit.windows import NEVER, Reservation, UsageWindow

MIN_PROBED_WAIT = 1.5  # seconds; a shorter wait is not worth a probe
MIN_EXHAUSTED_DAY = 600.0  # seconds; a day that ends sooner is waited for like any other limit
MIN_PROFILED_WINDOW = 2.0  # seconds; in shorter windows it does not matter how a provider counts
MAX_EARLY_ARRIVAL = 0.25  # seconds by which a call may reach the provider before its window opens there
MAX_ROUNDED_EARLY_ARRIVAL = 1.0  # the same, if the hint is in whole seconds
NOT_YET = float("-inf")
GUARD_STEPS = 4  # refusals of early calls without an exact hint, until a window is extended no further


class KnownWindows:
    """The known limits of one bucket, with one usage window for each, and how the provider counts them.

    A configured limit is never raised by a stated one. A limit that was kept and is refused all the same is counted
    more strictly, by what the refusal says about it (`tighten`).
    """

    def __init__(
        self,
        rates: dict[Dimension, Rate],
        profile: ProviderProfile,
        midnight: float | None,
        history: Iterable[Reservation],
    ) -> None:
        self.profile = profile
        self.window_start: float | None = None
        """When one of the fixed windows starts, if the provider has such windows."""
        self._start_probe: float | None = None
        """When a call was sent to find out when they start."""
        self._has_probed_start = self._is_start_assumed = self._fits_shared_start = False
        self._measured_at = NOT_YET
        """When a burst was measured last."""
        self._midnight = midnight
        self._history = history
        self._applied_counting = profile.counting
        self._applied_bursts = 0
        self._applied_guard = 0.0
        self.windows = {dimension: self._new_window(dimension, rate) for dimension, rate in rates.items()}
        self.configured = dict(rates)
        self._stated: dict[Dimension, Rate] = {}

    # Admission.

    def next_allowed_at(self, cost: CallCost, now: float) -> float:
        """When a call of this cost fits into all windows; `now` means at once."""
        if self.profile.counting is not self._applied_counting:
            self._apply_counting()
        if self._applied_bursts != self.profile.burst_findings:
            self._apply_bursts()
        if self._applied_guard != self.profile.guard:
            self._apply_guard()
        confirmed_at = NEVER
        if self._start_probe is not None:
            confirmed_at = self._start_probe + self.profile.refusal_latency
            if now >= confirmed_at:
                self._assume_start()
        at = now
        for dimension, window in self.windows.items():
            at = max(at, window.next_allowed_at(cost.amount(dimension), now))
        return min(at, confirmed_at) if now < confirmed_at else at

    # Probes.

    def may_probe(self, in_flight: int) -> bool:
        return self._may_probe_start or (self.profile.may_probe and not in_flight)

    @property
    def _may_probe_start(self) -> bool:
        is_unknown = self.profile.counting is Counting.FIXED and self.window_start is None
        return is_unknown and not self._has_probed_start and self.profile.may_probe_start

    def probe_at(self, cost: CallCost, now: float) -> float | None:
        """When to send a call that does not fit into sliding windows, to see how the provider counts.

        It is sent when it fits into token buckets. If windows were found to be fixed with another bucket, it is sent when
        it fits into windows that start at the same time or, unless they are known to do so, at once. None if it is not
        worth it.
        """
        profiled = self._profiled(cost)
        if not any(
            window.sliding_window_at(amount, now) > now + MIN_PROBED_WAIT for window, amount in profiled
        ):
            return None
        if self._may_probe_start:
            return self._shared_start_at(cost, now) if self.profile.starts_together else now
        return max(window.token_bucket_at(amount, now) for window, amount in profiled)

    def _shared_start_at(self, cost: CallCost, now: float) -> float:
        """When a call fits into fixed windows that start at the same time as those of another bucket."""
        start = self.profile.window_start
        return max(window.fixed_window_at(amount, now, start) for window, amount in self._profiled(cost))

    def start_probe(self, now: float) -> None:
        if self._may_probe_start:
            self._start_probe, self._has_probed_start = now, True
            self._fits_shared_start = self._shared_start_at(CallCost(), now) <= now
            self.profile.is_probing_start = True
        else:
            self.profile.start_probe(now)

    def record_admission(self, call: Reservation) -> None:
        """Note an answered call: if it was a probe, it tells how the provider counts."""
        self.profile.record_admission(call.at)
        self.profile.shrink_guard()
        if self._start_probe == call.at:
            self._assume_start()

    def _assume_start(self) -> None:
        """Conclude from an admitted probe when windows start: as those of another bucket, or else shortly before it."""
        start = self.profile.window_start if self._fits_shared_start else self._start_probe
        self._is_start_assumed = True
        self._end_start_probe(start)
        if not self._fits_shared_start:
            self.profile.starts_together = False

    def _end_start_probe(self, start: float | None) -> None:
        self._start_probe, self.window_start = None, start
        self.profile.is_probing_start = False
        self._apply_counting()

    def abandon_probe(self, call: Reservation) -> None:
        """End the probe without a finding if it is this call."""
        self.profile.abandon_probe(call.at)
        if self._start_probe == call.at:
            self._start_probe, self._has_probed_start = None, False
            self.profile.is_probing_start = False

    def _profiled(self, cost: CallCost) -> list[tuple[UsageWindow, float]]:
        """The windows whose counting depends on the provider, with the amount that this call uses of each."""
        return [
            (window, cost.amount(name))
            for name, window in self.windows.items()
            if window.rate.seconds >= MIN_PROFILED_WINDOW and name is not Dimension.DAY
        ]

    # Daily limits.

    def restore_day_usage(self, calls: int, at: float) -> None:
        """Count calls of earlier runs, the last of them sent at `at`."""
        if window := self.windows.get(Dimension.DAY):
            window.record(calls, at)

    def day_exhausted_until(self, now: float) -> float | None:
        """Return when the daily limit opens again; None if it is not used up, or opens soon."""
        window = self.windows.get(Dimension.DAY)
        until = now if window is None else window.next_allowed_at(1.0, now)
        return until if until > now + MIN_EXHAUSTED_DAY else None

    # Where limits come from.

    def configure(self, rates: dict[Dimension, Rate]) -> None:
        """Set the limits that a person configured; what was used before still counts."""
        self.configured = dict(rates)
        for dimension, rate in rates.items():
            self._stated.pop(dimension, None)
            self.windows.setdefault(dimension, self._new_window(dimension, rate)).set_rate(rate)

    def add_limit(self, dimension: Dimension, rate: Rate) -> bool:
        """Adopt a limit that the provider stated, unless a stricter one is configured; return whether it is new."""
        configured = self.configured.get(dimension)
        if self._stated.get(dimension, configured) == rate:
            return False
        if configured and rate.per_second > configured.per_second:
            return False
        self._stated[dimension] = rate
        self.windows[dimension] = self._replayed(dimension, rate)
        return True

    def forget_stated(self) -> None:
        """Drop the limits that were stated; those that a person configured stay."""
        for dimension in self._stated:
            self.windows.pop(dimension)
        self._stated = {}
        for dimension, rate in self.configured.items():
            self.windows[dimension] = self._replayed(dimension, rate)

    def _replayed(self, dimension: Dimension, rate: Rate) -> UsageWindow:
        window = self._new_window(dimension, rate)
        window.replay_all(dimension, self._history, counts_refused=self.profile.counts_refused)
        return window

    def _new_window(self, dimension: Dimension, rate: Rate) -> UsageWindow:
        window = UsageWindow(rate, midnight=self._midnight if dimension is Dimension.DAY else None)
        self._set_counting(dimension, window)
        window.set_guard(self.profile.guard)
        return window

    # How the provider counts.

    def infer_counting(self, call: Reservation, opens_at: float | None) -> bool:
        """Infer how the provider counts from a refusal; nothing can be inferred if our own count saw the limit open."""
        profiled = self._profiled(call.cost)
        if self._start_probe == call.at:
            if opens_at is not None:
                self.profile.compare_starts(opens_at, max(window.rate.seconds for window, _ in profiled))
            self._end_start_probe(opens_at)
            return True
        before, sliding_at = (
            self.profile.counting,
            max((window.sliding_window_at(amount, call.at) for window, amount in profiled), default=0.0),
        )
        if before not in (None, Counting.TOKEN_BUCKET) or sliding_at <= call.at:
            return False
        if opens_at is None:
            return before is None and self.profile.record_probe_refusal(call.at)
        # An admitted probe looks like a token bucket, but a fixed window may have started just before it.
        token_bucket_at = max(window.token_bucket_at(amount, call.at) for window, amount in profiled)
        if self.profile.classify(opens_at, sliding_at, token_bucket_at) is Counting.FIXED:
            self.window_start = self.profile.window_start = opens_at
        self._apply_counting()
        return self.profile.counting is not before

    def merge_counting(self, counting: Counting, window_start: float | None) -> None:
        """Adopt how the provider counts, as found by another run."""
        self.profile.counting = counting
        self.window_start = window_start if counting is Counting.FIXED else None
        self.profile.window_start = window_start or self.profile.window_start
        self._apply_counting()

    def _apply_counting(self) -> None:
        self._applied_counting = self.profile.counting
        for dimension, window in self.windows.items():
            self._set_counting(dimension, window)

    def _set_counting(self, dimension: Dimension, window: UsageWindow) -> None:
        """Count as the provider does; windows slide as long as it is not known when those of this bucket start."""
        is_profiled = dimension is not Dimension.DAY and window.rate.seconds >= MIN_PROFILED_WINDOW
        is_start_unknown = self.profile.counting is Counting.FIXED and self.window_start is None
        window.counting = self.profile.counting if is_profiled and not is_start_unknown else None
        window.start = self.window_start or 0.0

    # Refusals of calls that the limits allowed.

    def tighten(self, call: Reservation, now: float, hint: float | None) -> None:
        """Count more strictly, because a call was refused although it kept the known limits.

        Either the call arrived shortly before its window opened, or the provider counts in another way, or it enforces
        the limit in smaller portions than it is stated: a token bucket has room for fewer calls at once.
        """
        if hint is not None and self._extend_reopened(call, hint):
            return
        is_start_known = self.window_start is not None and not self._is_start_assumed
        if self.profile.counting is Counting.FIXED and not is_start_known and hint is not None:
            # The fixed windows of this bucket start at a different time from those of the first one.
            self.window_start, self._is_start_assumed = now + hint, False
            self._apply_counting()
        elif self.profile.fall_back_to_sliding():
            self._apply_counting()
        elif hint is None:
            self._halve_window()
        else:
            self._measured_at = now
            self._measure_burst(now, hint)

    def _extend_reopened(self, call: Reservation, hint: float) -> bool:
        """Extend the windows that had only just opened, if the call may have arrived too early; whether there are any."""
        is_rounded = hint > 0 and hint == int(hint)
        if hint > (MAX_ROUNDED_EARLY_ARRIVAL if is_rounded else MAX_EARLY_ARRIVAL):
            return False
        reopened = [
            window
            for dimension, window in self.windows.items()
            if dimension is not Dimension.DAY and self._has_just_opened(dimension, window, call)
        ]
        most = max((window.max_guard for window in reopened), default=0.0)
        if self.profile.guard >= most:
            return False
        self.profile.extend_guard(most / GUARD_STEPS if is_rounded else hint / 2, most)
        return True

    def _apply_guard(self) -> None:
        self._applied_guard = self.profile.guard
        for window in self.windows.values():
            window.set_guard(self.profile.guard)

    def _has_just_opened(self, dimension: Dimension, window: UsageWindow, call: Reservation) -> bool:
        """Whether the window had no room for this call until shortly before it was sent."""
        amount, rate = call.cost.amount(dimension), window.rate
        if window.counting is Counting.FIXED:
            return (call.at - window.start) % rate.seconds <= window.slack + MAX_EARLY_ARRIVAL
        is_bucket = window.counting is Counting.TOKEN_BUCKET
        replayed = UsageWindow(
            rate if is_bucket else replace(rate, seconds=rate.seconds + MAX_EARLY_ARRIVAL), window.counting
        )
        for other in self._history:
            if other.at <= call.at and not other.refused:
                replayed.record(other.cost.amount(dimension), other.at)
        if is_bucket:
            return replayed.next_allowed_at(amount, 0.0) > call.at - MAX_EARLY_ARRIVAL
        return replayed.next_allowed_at(amount, call.at) > call.at

    def _measure_burst(self, now: float, hint: float) -> None:
        """Take the limit for a token bucket at the same rate: the hint says how many calls it takes at once.

        A sliding window in smaller portions is kept, too, by a bucket of its size.
        """
        window = self.windows[Dimension.REQUESTS]
        burst = max(1.0, round(1 + window.level_at(now) - hint * window.rate.per_second))
        self.profile.record_burst(self._requests_rate, min(burst, max(1.0, window.rate.amount - 1)))
        self._apply_bursts()

    def measure_again(self, call: Reservation, now: float, hint: float) -> None:
        """Correct a measured burst after another refusal of a call that was sent before the measurement."""
        if call.at <= self._measured_at:
            self._measure_burst(now, hint)

    @property
    def _requests_rate(self) -> Rate:
        """The limit of requests as it is stated or configured."""
        return self._stated.get(Dimension.REQUESTS) or self.configured[Dimension.REQUESTS]

    def _apply_bursts(self) -> None:
        """Enforce limits in the portions that were measured with any key of the provider."""
        self._applied_bursts = self.profile.burst_findings
        if window := self.windows.get(Dimension.REQUESTS):
            burst = self.profile.bursts.get(self._requests_rate)
            if burst is not None and burst < window.rate.amount:
                window.set_rate(Rate(burst, burst / window.rate.per_second))
                self._set_counting(Dimension.REQUESTS, window)

    def _halve_window(self) -> None:
        """Keep the rate but halve the window: the limit is enforced in smaller portions than stated."""
        window = self.windows[Dimension.REQUESTS]
        amount = window.rate.amount // 2
        if amount >= 1:
            window.set_rate(Rate(amount, window.rate.seconds * amount / window.rate.amount))
