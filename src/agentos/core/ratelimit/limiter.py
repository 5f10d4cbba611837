"""Rate limiter: decides when a bucket may send its next call, under limits that are known or estimated."""

from collections import deque

from agentos.core.ratelimit.limits import CallCost, Dimension, Rate
from agentos.core.ratelimit.provider_profile import CountingErrors, ProviderProfile
from agentos.core.ratelimit.rate_estimator import HISTORY_SIZE, RateEstimator
from agentos.core.ratelimit.token_rate_estimator import TokenRateEstimator
from agentos.core.ratelimit.windows import Reservation, TokenBucket, UsageWindow

MIN_PROBED_WAIT = 1.5  # seconds; a shorter wait is not worth a probe
MIN_EXHAUSTED_DAY = 600.0  # seconds; a day that ends sooner is waited for like any other limit
REQUEST_DIMENSIONS = (Dimension.REQUESTS, Dimension.DAY)


class RateLimiter:
    """Rate limiter of one bucket and model: one usage window per limited dimension.

    Limits come from three sources: `configure` (a person), `add_limit` (the provider stated it) and, if there
    is no request limit from either, a `RateEstimator`. A configured limit is never raised by a stated one.

    Every call is reserved at its estimated cost and settled at its real one, so that concurrent calls cannot
    overrun a limit together:

        if limiter.next_allowed_at(cost, now) <= now:
            reservation = limiter.reserve(cost, now)
            ...
            limiter.settle(reservation, used)  # answered
            limiter.cancel(reservation, now)   # refused by the provider
            limiter.drop(reservation)          # failed, admission unknown

    It keeps configured and stated limits exactly and so causes hardly any refusal (at most one, to find out
    how the provider counts). Estimated limits are found by being refused now and then. It does not wait, and
    it does not know about refusals' waiting times: that is the `Cooldown` of the bucket.
    """

    def __init__(
        self,
        rates: dict[Dimension, Rate],
        profile: ProviderProfile | None = None,
        midnight: float | None = None,
    ) -> None:
        self.profile = profile or ProviderProfile()
        self._midnight = midnight
        self._windows = {dimension: self._new_window(dimension, rate) for dimension, rate in rates.items()}
        self._configured = dict(rates)
        self._stated: dict[Dimension, Rate] = {}
        self._estimator = None if Dimension.REQUESTS in rates else RateEstimator(self.profile)
        self._token_estimator = TokenRateEstimator()
        self._ignore_refusals_until = float("-inf")
        self._history: deque[Reservation] = deque(maxlen=HISTORY_SIZE)

    @property
    def rates(self) -> dict[Dimension, Rate]:
        return {dimension: window.rate for dimension, window in self._windows.items()}

    def used(self, dimension: Dimension, now: float) -> float:
        return self._windows[dimension].used(now)

    # Admission.

    def next_allowed_at(self, cost: CallCost, now: float) -> float:
        """Return the first moment at which a call of this cost may be sent; `now` means at once."""
        at = now
        for dimension, window in self._windows.items():
            at = max(at, window.next_allowed_at(cost.amount(dimension), now))
        if self._estimator is not None:
            if at > now:
                self._estimator.record_wait()
            if not self._estimator.may_send(now):
                at = max(at, self._estimator.next_confirmation_at())
        return at

    def reserve(self, cost: CallCost, now: float) -> Reservation:
        """Charge a call at its estimated cost; call this when it is sent."""
        if self._estimator is not None:
            self._estimator.record_send(now)
            # Only here, so that no call becomes possible before the moment that `next_allowed_at` named.
            if self._estimator.grow(now):
                self._token_estimator.grow(self.profile.growth)
                self._apply_estimate()
        entries = {name: window.record(cost.amount(name), now) for name, window in self._windows.items()}
        reservation = Reservation(now, cost, entries)
        self._history.append(reservation)
        return reservation

    def settle(self, reservation: Reservation, used: CallCost) -> None:
        """Replace the estimated cost by the real one: the call was answered."""
        for dimension, entry in reservation.entries.items():
            if dimension in self._windows and dimension not in REQUEST_DIMENSIONS:
                self._windows[dimension].correct(entry, used.amount(dimension))
        reservation.cost, reservation.settled = used, True
        self.profile.record_admission(reservation.at)
        if self._estimator is not None:
            self._estimator.record_answer(reservation.at)

    def drop(self, reservation: Reservation) -> None:
        """Leave the estimated cost charged: the call failed, and may have been admitted."""
        self.profile.abandon_probe(reservation.at)

    def probe_at(self, cost: CallCost, now: float) -> float | None:
        """Return when one call may probe how the provider counts; None if that is not worth it.

        A probe fits into a token bucket while a sliding window would stay closed for long.
        """
        profiled = self._profiled(cost)
        if not any(
            window.sliding_window_at(amount, now) > now + MIN_PROBED_WAIT for window, amount in profiled
        ):
            return None
        return max(window.token_bucket_at(amount, now) for window, amount in profiled)

    def _profiled(self, cost: CallCost) -> list[tuple[UsageWindow, float]]:
        """The windows whose counting depends on the provider, with what this call takes of each."""
        return [(window, cost.amount(name)) for name, window in self._windows.items() if window.profile]

    # Daily limits.

    def restore_day_usage(self, calls: int, at: float) -> None:
        """Count calls of earlier runs, the last of them sent at `at`."""
        if window := self._windows.get(Dimension.DAY):
            window.record(calls, at)

    def day_exhausted_until(self, now: float) -> float | None:
        """Return when the daily limit opens again; None if it is not used up, or opens soon."""
        window = self._windows.get(Dimension.DAY)
        until = now if window is None else window.next_allowed_at(1.0, now)
        return until if until > now + MIN_EXHAUSTED_DAY else None

    # Known limits.

    def configure(self, rates: dict[Dimension, Rate]) -> None:
        """Set the limits that a person configured; what was used before still counts."""
        if rates == self._configured:
            return
        self._configured = dict(rates)
        for dimension, rate in rates.items():
            self._stated.pop(dimension, None)
            self._windows.setdefault(dimension, self._new_window(dimension, rate)).set_rate(rate)
        if Dimension.REQUESTS in rates:
            self._estimator = None

    def add_limit(self, dimension: Dimension, rate: Rate) -> bool:
        """Take over a limit that the provider stated, unless a stricter one is configured; true if it is new."""
        configured = self._configured.get(dimension)
        if self._stated.get(dimension, configured) == rate:
            return False
        if configured and rate.per_second > configured.per_second:
            return False
        self._stated[dimension] = rate
        self._windows[dimension] = self._replay_history(dimension, self._new_window(dimension, rate))
        if dimension is Dimension.REQUESTS:
            self._estimator = None
        return True

    def _new_window(self, dimension: Dimension, rate: Rate) -> UsageWindow:
        return UsageWindow(rate, self.profile, self._midnight if dimension is Dimension.DAY else None)

    def _replay_history(self, dimension: Dimension, window: UsageWindow) -> UsageWindow:
        """Charge the window with all calls sent before it was created, except refused ones."""
        for reservation in self._history:
            if not reservation.refused:
                amount = reservation.cost.amount(dimension)
                reservation.entries[dimension] = window.record(amount, reservation.at)
        return window

    # Refusals.

    def cancel(self, reservation: Reservation, now: float) -> bool:
        """Take back a refused call; return whether its refusal says anything new.

        It does not if the call was sent before the last refusal was known.
        """
        is_new = reservation.at > self._ignore_refusals_until
        self._ignore_refusals_until = now if is_new else self._ignore_refusals_until
        if self._estimator is not None:
            self._estimator.cancel(reservation.at)
        self.uncount(reservation)
        return is_new

    def uncount(self, reservation: Reservation) -> None:
        """Take a refused call out of the windows, unless the provider counts refused calls."""
        reservation.refused = True
        if not self.profile.counts_refused:
            for dimension, entry in reservation.entries.items():
                if dimension in self._windows:
                    self._windows[dimension].correct(entry, 0.0)

    def infer_counting(self, reservation: Reservation, opens_at: float | None) -> bool:
        """Infer how the provider counts from a refusal; return whether that was possible.

        Call it after `cancel`. `opens_at` is when the provider says its limit opens. A limit that looked
        open to us tells nothing.
        """
        profiled = self._profiled(reservation.cost)
        sliding_at = max(
            (window.sliding_window_at(amount, reservation.at) for window, amount in profiled), default=0.0
        )
        if self.profile.counting is not None or sliding_at <= reservation.at:
            return False
        if opens_at is None:
            return self.profile.record_probe_refusal(reservation.at)
        token_bucket_at = max(window.token_bucket_at(amount, reservation.at) for window, amount in profiled)
        self.profile.classify(opens_at, sliding_at, token_bucket_at)
        return True

    def record_refusal(
        self, reservation: Reservation, hint: float, latency: float, *, hinted: bool = True
    ) -> None:
        """Update the estimate, or tighten a known limit that was kept and yet refused.

        `hint` is how long after sending the call would have been admitted: the provider's own figure if
        `hinted`, else a default. `latency` is how long the refusal took.
        """
        if self._estimator is not None:
            self._estimator.record_refusal(reservation.at, hint, latency, hinted=hinted)
            errors = self._token_estimator.record_refusal(
                self._history, reservation, reservation.at + hint, paced=self.token_rate() is not None
            )
            if errors is not None:
                self.profile.record_errors(errors)
            self._apply_estimate(refused=True)
        elif not self.profile.fall_back_to_sliding():
            self._halve_window()

    def record_repeated_refusal(self, reservation: Reservation, hint: float) -> None:
        """Use the refusal of a call sent before the last refusal: it shows whether refused calls count."""
        if self._estimator is not None:
            opens_at = reservation.at + hint
            self._estimator.record_repeated_refusal(opens_at)
            errors = self._token_estimator.record_repeated_refusal(reservation, opens_at)
            if errors is not None:
                self.profile.record_errors(errors)

    def hint_shortfall(self) -> float:
        """Seconds to add to a hint where refused calls count: hints leave out the refused call itself."""
        per_second = self.per_second()
        return 1.0 / per_second if self.profile.counts_refused and per_second else 0.0

    def _halve_window(self) -> None:
        """Keep the rate in half the window: the limit is enforced in smaller portions than it is stated."""
        window = self._windows[Dimension.REQUESTS]
        amount = window.rate.amount // 2
        if amount >= 1:
            window.set_rate(Rate(amount, window.rate.seconds * amount / window.rate.amount))

    # Estimates.

    def per_second(self) -> float | None:
        """The estimated request rate; None if the limit is known, or nothing was found yet."""
        return self._estimator.per_second if self._estimator else None

    def window(self) -> float | None:
        """The seconds within which that rate may be used up at once; None if calls must be sent evenly."""
        return self._estimator.window if self._estimator else None

    def token_rate(self) -> Rate | None:
        """The largest call and the seconds in which that many tokens are admitted, if tokens are counted."""
        if not isinstance(self._windows.get(Dimension.TOKENS), TokenBucket):
            return None
        return self._token_estimator.measured_rate

    def merge(self, per_second: float, window: float | None = None, token_rate: Rate | None = None) -> None:
        """Take over the estimate of another run; it is raised and corrected like our own."""
        if self._estimator is not None:
            self._estimator.merge(per_second, window)
            if token_rate is not None:
                self._token_estimator.merge(token_rate.per_second, token_rate.amount)
                self.profile.record_errors(CountingErrors(requests=1.0, tokens=0.0))
            self._apply_estimate()

    def _counts_tokens(self) -> bool:
        """Return whether a token limit that nobody stated explains the refusals better than a request limit."""
        return (
            self._token_estimator.per_second is not None
            and self._estimator is not None
            and self._estimator.window is None
            and isinstance(self._windows.get(Dimension.TOKENS), TokenBucket | None)
            and self.profile.counts_tokens
        )

    def _apply_estimate(self, *, refused: bool = False) -> None:
        """Set the windows from the estimate: even tokens, even requests, or a window of requests."""
        if self._estimator is None:
            return
        tokens = self._windows.get(Dimension.TOKENS)
        if self._counts_tokens():
            self._windows.pop(Dimension.REQUESTS, None)
            if isinstance(tokens, TokenBucket) and not refused:
                tokens.set_rate(self._token_estimator.rate)
            else:
                self._windows[Dimension.TOKENS] = self._token_estimator.token_bucket()
            return
        if isinstance(tokens, TokenBucket):
            del self._windows[Dimension.TOKENS]
        rate = self._estimator.rate
        if rate is None:
            self._windows.pop(Dimension.REQUESTS, None)
        elif self._estimator.window is not None:
            self._windows[Dimension.REQUESTS] = self._replay_history(Dimension.REQUESTS, UsageWindow(rate))
        else:
            self._windows.setdefault(Dimension.REQUESTS, UsageWindow(rate)).set_rate(rate)
