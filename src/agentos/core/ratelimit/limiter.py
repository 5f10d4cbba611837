"""Rate limiter: decides when a bucket may send its next call, under limits that are known or estimated."""

from collections import deque

from agentos.core.ratelimit.known_windows import KnownWindows
from agentos.core.ratelimit.learned_windows import LearnedWindows
from agentos.core.ratelimit.limit_estimator import LimitEstimator
from agentos.core.ratelimit.limit_evidence import ROUNDING
from agentos.core.ratelimit.limits import CallCost, Counting, Dimension, LearnedLimits, Rate
from agentos.core.ratelimit.provider_profile import ProviderProfile
from agentos.core.ratelimit.windows import NEVER, Reservation, UsageWindow

MAX_SHORTFALL = 60.0  # seconds
HISTORY_SIZE = 2000  # calls
FEW_SLOTS = 4  # a larger number may be a rate mistaken for slots: more are tried without a pause
SAME_MOMENT = 0.012  # seconds; calls take some time to arrive, and so do refusals
REQUEST_DIMENSIONS = (Dimension.REQUESTS, Dimension.DAY)
MAX_IGNORED_HINT = (
    5.0  # seconds; a longer hint is followed even if the refusals look like a limit on concurrent calls
)


class RateLimiter:
    """Rate limiter of one bucket and model: one usage window per limited dimension.

    Limits come from three sources: `configure` (a person), `add_limit` (the provider stated it) and, if there
    is no request limit from either, a `LimitEstimator`. A configured limit is never raised by a stated one.

    Every call is reserved at its estimated cost and settled at its real one, so that concurrent calls cannot
    overrun a limit together:

        if limiter.next_allowed_at(cost, now) <= now:
            reservation = limiter.reserve(cost, now)
            ...
            limiter.settle(reservation, used, now)  # answered
            limiter.cancel(reservation, now)        # refused by the provider
            limiter.drop(reservation, now)          # failed, admission unknown

    It keeps configured and stated limits exactly and so causes hardly any refusal (at most one, to find out
    how the provider counts). Estimated limits are found by being refused now and then. It does not wait; how long to
    wait after a refusal is up to the `Cooldown` of the bucket.
    """

    def __init__(
        self,
        rates: dict[Dimension, Rate],
        profile: ProviderProfile | None = None,
        midnight: float | None = None,
    ) -> None:
        self.profile = profile or ProviderProfile()
        self._history: deque[Reservation] = deque(maxlen=HISTORY_SIZE)
        self._in_flight: set[Reservation] = set()
        self._latest = 0.0
        self._known = KnownWindows(rates, self.profile, midnight, self._history)
        self._estimator = None if Dimension.REQUESTS in rates else LimitEstimator(self._history, self.profile)
        self._learned = LearnedWindows()
        self._ignore_refusals_until = float("-inf")

    @property
    def rates(self) -> dict[Dimension, Rate]:
        learned = {dimension: window.rate for dimension, window in self._learned.windows.items()}
        return learned | {dimension: window.rate for dimension, window in self._known.windows.items()}

    @property
    def learned(self) -> LearnedLimits | None:
        """The limits that were found from refusals; None if they are known, or nothing was found yet."""
        return self._estimator.learned if self._estimator else None

    @property
    def counting(self) -> Counting | None:
        """How the provider counts known limits; None if it is not known, or if limits are learned."""
        return None if self._estimator else self.profile.counting

    @property
    def probing(self) -> bool:
        """Whether probes decide when a refused call may be sent again, because the provider gave no hint."""
        return self._estimator is not None and self._estimator.probing

    @property
    def window_start(self) -> float | None:
        """When one of the fixed windows of known limits starts, if the provider has such windows."""
        return self._known.window_start

    def used(self, dimension: Dimension, now: float) -> float:
        return (self._known.windows.get(dimension) or self._learned.windows[dimension]).used(now)

    # Admission.

    def next_allowed_at(self, cost: CallCost, now: float) -> float:
        """Return the first moment at which a call of this cost may be sent; `now` means at once."""
        at = self._known.next_allowed_at(cost, now)
        if self._estimator is not None:
            at = max(at, self._estimator.next_allowed_at(now, len(self._in_flight)))
            if not self._estimator.exploring:
                at = max(at, self._learned_at(cost, now))
            elif at > now and self._estimator.explores_beyond:
                at = min(at, self._learned_at(cost, now))
        return at

    def _learned_at(self, cost: CallCost, now: float) -> float:
        """`next_allowed_at` by the learned limits alone."""
        learned = self._estimator.learned if self._estimator else None
        if learned is not self._learned.limits:
            self._obey(learned)
        return self._learned.next_allowed_at(cost, now, len(self._in_flight), self._latest)

    def _obey(self, learned: LearnedLimits | None) -> None:
        self._learned = LearnedWindows(learned)
        for limit in learned.limits if learned else ():
            if limit.dimension not in self._known.windows:
                window = UsageWindow(limit.rate, limit.counting, limit.start)
                window.replay_all(limit.dimension, self._history, counts_refused=self.profile.counts_refused)
                self._learned.windows[limit.dimension] = window

    def reserve(self, cost: CallCost, now: float, *, own: bool = True) -> Reservation:
        """Charge a call at its estimated cost; call this when it is sent, by this run or (not `own`) by another."""
        early = is_trial = 0.0
        if own and self._estimator is not None and self._may_try:
            is_trial = early = max(0.0, self._learned_at(cost, now) - now)
            if early and not self._may_try_early:
                early = 0.0
                self.profile.start_trial(now, id(self._estimator))
        self._latest = now
        windows = (*self._known.windows.items(), *self._learned.windows.items())
        entries = {name: window.record(cost.amount(name), now) for name, window in windows}
        reservation = Reservation(now, cost, entries, is_trial=is_trial > 0, early=early)
        self._history.append(reservation)
        self._in_flight.add(reservation)
        if self._estimator is not None and own:
            self._estimator.record_send(reservation)
        return reservation

    def settle(self, reservation: Reservation, used: CallCost, now: float | None = None) -> None:
        """Replace the estimated cost by the real one: the call was answered."""
        self._end(reservation, now)
        for dimension, entry in reservation.entries.items():
            window = self._known.windows.get(dimension) or self._learned.windows.get(dimension)
            if window is not None and dimension not in REQUEST_DIMENSIONS:
                window.correct(entry, used.amount(dimension))
        reservation.cost = used
        self._known.record_admission(reservation)
        if self._estimator is not None:
            self._estimator.record_answer(reservation, self._latest if now is None else now)

    def drop(self, reservation: Reservation, now: float | None = None) -> None:
        """Leave the estimated cost charged: the call failed, and may have been admitted."""
        self._end(reservation, now)
        self._known.abandon_probe(reservation)
        if self._estimator is not None:
            self._estimator.drop(reservation)

    def _end(self, reservation: Reservation, now: float | None) -> None:
        if reservation.ended_at == NEVER:
            reservation.ended_at = self._latest if now is None else now
            self._in_flight.discard(reservation)

    def probe_at(self, cost: CallCost, now: float) -> float | None:
        """Return when one call may be sent beyond the limits, to learn from it; None if that is not worth it.

        For known limits, it probes how the provider counts: such a call fits into a token bucket while a sliding
        window would stay closed for long. For learned limits, it tries whether they have risen.
        """
        if self._estimator is not None and self._may_try:
            allowed_at, in_flight = self._learned_at(cost, now), len(self._in_flight)
            if self._may_try_early:
                share = self._estimator.early_share
                return self._learned.early_trial_at(allowed_at, now, share, in_flight, self._latest)
            return self._learned.trial_at(allowed_at, now, in_flight, hinted=self._estimator.sees_openings)
        return self._known.probe_at(cost, now)

    @property
    def may_probe(self) -> bool:
        return self._may_try or self._known.may_probe(len(self._in_flight))

    @property
    def _may_try(self) -> bool:
        return self._estimator is not None and (self._estimator.may_try or self._estimator.may_try_early)

    @property
    def _may_try_early(self) -> bool:
        """Whether a trial may be early. If all slots are taken, that would be after a pause, which may never come."""
        estimator = self._estimator
        if estimator is None or not estimator.may_try_early:
            return False
        slots = estimator.learned.concurrency if estimator.learned else None
        is_full = self._learned.is_full(len(self._in_flight))
        return slots is None or slots <= FEW_SLOTS or not (is_full and estimator.may_try)

    def start_probe(self, now: float) -> None:
        if not self._may_try:
            self._known.start_probe(now)

    def sent_at(self, at: float) -> bool:
        """Return whether a call was sent at this moment and not refused."""
        return any(abs(call.at - at) <= SAME_MOMENT and not call.refused for call in self._history)

    # Known limits.

    def restore_day_usage(self, calls: int, at: float) -> None:
        """Count calls of earlier runs, the last of them sent at `at`."""
        self._known.restore_day_usage(calls, at)

    def day_exhausted_until(self, now: float) -> float | None:
        """Return when the daily limit opens again; None if it is not used up, or opens soon."""
        return self._known.day_exhausted_until(now)

    def configure(self, rates: dict[Dimension, Rate]) -> None:
        """Set the limits that a person configured; what was used before still counts."""
        if rates != self._known.configured:
            self._known.configure(rates)
            if Dimension.REQUESTS in rates:
                self._estimator, self._learned = None, LearnedWindows()

    def add_limit(self, dimension: Dimension, rate: Rate) -> bool:
        """Adopt a limit that the provider stated, unless a stricter one is configured; return whether it is new."""
        if not self._known.add_limit(dimension, rate):
            return False
        self._learned.windows.pop(dimension, None)
        if dimension is Dimension.REQUESTS:
            self._estimator, self._learned = None, LearnedWindows()
        return True

    def forget_learned(self) -> None:
        """Drop the limits that were stated or learned; those that a person configured stay."""
        self._known.forget_stated()
        self._learned = LearnedWindows()
        if self._estimator is not None:
            self._estimator.forget()
        if Dimension.REQUESTS not in self._known.configured:
            self._estimator = LimitEstimator(self._history, self.profile)

    # Refusals.

    def cancel(self, reservation: Reservation, now: float) -> bool:
        """Take back a refused call; return whether its refusal reveals anything new.

        It does not if the call was sent before the last refusal arrived.
        """
        is_new = reservation.at > self._ignore_refusals_until
        self._ignore_refusals_until = now if is_new else self._ignore_refusals_until
        self.uncount(reservation, now)
        return is_new

    def uncount(self, reservation: Reservation, now: float | None = None) -> None:
        """Take a refused call out of the windows, unless the provider counts refused calls."""
        self._end(reservation, now)
        reservation.refused = True
        if not self.profile.counts_refused:
            for dimension, entry in reservation.entries.items():
                window = self._known.windows.get(dimension) or self._learned.windows.get(dimension)
                if window is not None:
                    window.correct(entry, 0.0)

    def record_refusal(
        self, reservation: Reservation, now: float, hint: float | None, *, is_new: bool
    ) -> float | None:
        """Learn from a refusal, after `cancel`; return the seconds to wait, None if unknown.

        `hint` is the number of seconds that the provider asks for.
        """
        inferred = self._known.infer_counting(reservation, None if hint is None else now + hint)
        if self._estimator is not None and not inferred:
            return self._learn(reservation, now, hint)
        opens_at = self._known.next_allowed_at(reservation.cost, now)
        if not inferred and is_new and opens_at <= now:
            self._known.tighten(reservation, now, hint)
        elif not is_new and hint is not None:
            self._known.measure_again(reservation, now, hint)
        return opens_at - now if hint is None and opens_at > now else hint

    def _learn(self, reservation: Reservation, now: float, hint: float | None) -> float | None:
        estimator = self._estimator
        assert estimator is not None
        estimator.record_refusal(reservation, now, hint, len(self._in_flight))
        opens_at = self._learned_at(reservation.cost, now)
        learned = estimator.learned
        if hint is not None and (reservation.is_trial or reservation.early):
            # A hint in whole seconds may be up to one second too long; beyond that, the learned limit was wrong.
            idle = min(ROUNDING, now + hint - opens_at)
            self.profile.record_trial_cost(1.0 + self._learned.calls_in(idle, reservation.cost))
        is_short = hint is None or hint <= MAX_IGNORED_HINT
        if learned is not None and learned.concurrency is not None and learned.refusals > 1 and is_short:
            # A slot is free as soon as a call ends, whatever the hint says.
            return 0.0
        if hint is None and estimator.probing:
            return estimator.next_allowed_at(now, len(self._in_flight)) - now
        if hint is None and estimator.pace is not None:
            return max(opens_at - now, 1.0 / estimator.pace)
        if hint is None and estimator.learned is not None:
            return 0.0 if self._learned.is_full(len(self._in_flight)) else opens_at - now
        return hint

    def hint_shortfall(self) -> float:
        """Seconds to add to a hint where refused calls count: hints leave out the refused call itself."""
        window = self._learned.windows.get(Dimension.REQUESTS)
        if not self.profile.counts_refused or window is None:
            return 0.0
        return min(MAX_SHORTFALL, 1.0 / window.rate.per_second)

    # Other runs.

    def merge(self, learned: LearnedLimits) -> None:
        """Adopt what another run has learned; it is tried and corrected like our own."""
        if self._estimator is not None:
            self._estimator.merge(learned)

    def merge_counting(self, counting: Counting, window_start: float | None) -> None:
        """Adopt how the provider counts, as found by another run."""
        self._known.merge_counting(counting, window_start)
