"""What a bucket may send: amounts in a time, known or learnt, so that refusals hardly happen."""

from collections import deque

from agentos.core.ratelimit.limits import CallCost, Dimension, Rate
from agentos.core.ratelimit.provider_profile import ProviderProfile
from agentos.core.ratelimit.rate_estimator import RateEstimator
from agentos.core.ratelimit.token_rate_estimator import TokenRateEstimator
from agentos.core.ratelimit.windows import Reservation, TokenBucket, UsageWindow

REMEMBERED = 2000
# A shorter wait is not worth finding out whether it could be spared.
WORTH_PROBING = 1.5
# A day that is over in less is waited for like any other limit.
NEARLY = 600.0
PER_CALL = (Dimension.REQUESTS, Dimension.DAY)


class RateLimiter:
    """All meters of one bucket and model."""

    def __init__(
        self,
        rates: dict[Dimension, Rate],
        profile: ProviderProfile | None = None,
        midnight: float | None = None,
    ) -> None:
        self.profile = profile or ProviderProfile()
        self._midnight = midnight
        self._windows = {dimension: self._window_for(dimension, rate) for dimension, rate in rates.items()}
        self._configured = dict(rates)
        self._advertised: dict[Dimension, Rate] = {}
        self._estimator = None if Dimension.REQUESTS in rates else RateEstimator(self.profile)
        self._token_estimator = TokenRateEstimator()
        self._ignore_refusals_until = float("-inf")
        self._past: deque[Reservation] = deque(maxlen=REMEMBERED)

    @property
    def rates(self) -> dict[Dimension, Rate]:
        return {dimension: meter.rate for dimension, meter in self._windows.items()}

    def used(self, dimension: Dimension, now: float) -> float:
        return self._windows[dimension].spent(now)

    # Before a call, and after it.

    def opens_at(self, load: CallCost, now: float) -> float:
        """The first moment at which a call of this load may be sent."""
        at = now
        for dimension, meter in self._windows.items():
            at = max(at, meter.next_allowed_at(load.amount(dimension), now))
        if self._estimator is not None:
            if at > now:
                self._estimator.waited()
            if not self._estimator.may_send(now):
                at = max(at, self._estimator.retry_at())
        return at

    def reserve(self, load: CallCost, now: float) -> Reservation:
        if self._estimator is not None:
            self._estimator.sent(now)
            # Only here, so that nothing becomes possible before the moment that `opens_at` has named.
            if self._estimator.grow(now):
                self._token_estimator.grow(self.profile.growth)
                self._adopt()
        entries = {name: meter.spend(load.amount(name), now) for name, meter in self._windows.items()}
        reservation = Reservation(now, load, entries)
        self._past.append(reservation)
        return reservation

    def settle(self, reservation: Reservation, used: CallCost) -> None:
        """The answer has come: what was estimated becomes what was used."""
        for dimension, spent in reservation.entries.items():
            if dimension in self._windows and dimension not in PER_CALL:
                self._windows[dimension].correct(spent, used.amount(dimension))
        reservation.cost, reservation.settled = used, True
        self.profile.admitted(reservation.at)
        if self._estimator is not None:
            self._estimator.answered(reservation.at)

    def drop(self, reservation: Reservation) -> None:
        """The call ended in trouble: whether it was admitted is not known."""
        self.profile.dropped(reservation.at)

    def probe_at(self, load: CallCost, now: float) -> float | None:
        """When one call may find out how the provider counts; None if that is not worth it.

        It fits into a bucket that fills evenly, while a window that slides is closed for long.
        """
        meters = [(meter, load.amount(name)) for name, meter in self._windows.items() if meter.profile]
        if not any(meter.sliding(amount, now) > now + WORTH_PROBING for meter, amount in meters):
            return None
        return max(meter.filling(amount, now) for meter, amount in meters)

    # A day's calls.

    def recall_day(self, calls: int, at: float) -> None:
        """So many were sent by earlier runs, the last of them then."""
        if meter := self._windows.get(Dimension.DAY):
            meter.spend(calls, at)

    def day_over_until(self, now: float) -> float | None:
        """When calls may be sent again, if the day's are used up; None if they are not, or nearly back."""
        meter = self._windows.get(Dimension.DAY)
        until = now if meter is None else meter.next_allowed_at(1.0, now)
        return until if until > now + NEARLY else None

    # What is told.

    def configure(self, rates: dict[Dimension, Rate]) -> None:
        """A person has set other rates; what was sent counts on."""
        if rates == self._configured:
            return
        self._configured = dict(rates)
        for dimension, rate in rates.items():
            self._advertised.pop(dimension, None)
            self._windows.setdefault(dimension, self._window_for(dimension, rate)).change(rate)
        if Dimension.REQUESTS in rates:
            self._estimator = None

    def _window_for(self, dimension: Dimension, rate: Rate) -> UsageWindow:
        return UsageWindow(rate, self.profile, self._midnight if dimension is Dimension.DAY else None)

    def add_limit(self, dimension: Dimension, rate: Rate) -> bool:
        """The provider has named a limit; true if that is news. What a person has set is never raised."""
        given = self._configured.get(dimension)
        if self._advertised.get(dimension, given) == rate or (given and rate.per_second > given.per_second):
            return False
        self._advertised[dimension] = rate
        self._windows[dimension] = self._filled(dimension, self._window_for(dimension, rate))
        if dimension is Dimension.REQUESTS:
            self._estimator = None
        return True

    def _filled(self, dimension: Dimension, meter: UsageWindow) -> UsageWindow:
        """Which then knows what was sent before it was made, refused calls aside."""
        for reservation in self._past:
            if not reservation.refused:
                reservation.entries[dimension] = meter.spend(
                    reservation.cost.amount(dimension), reservation.at
                )
        return meter

    # What a refusal tells.

    def cancel(self, reservation: Reservation, now: float) -> bool:
        """The provider has refused the call, which then hardly counts; whether that says anything new.

        It does not if the call was sent before the last refusal was known.
        """
        fresh = reservation.at > self._ignore_refusals_until
        self._ignore_refusals_until = now if fresh else self._ignore_refusals_until
        if self._estimator is not None:
            self._estimator.cancelled(reservation.at)
        self.uncount(reservation)
        return fresh

    def uncount(self, reservation: Reservation) -> None:
        """A refused call takes no room, unless the provider counts those too."""
        reservation.refused = True
        if not self.profile.refused_count:
            for dimension, spent in reservation.entries.items():
                if dimension in self._windows:
                    self._windows[dimension].correct(spent, 0.0)

    def observe(self, reservation: Reservation, opens_at: float | None) -> bool:
        """A refusal may have said when its limit opens; whether that tells how the provider counts.

        Asked after the refused call was cancelled. A limit that had seemed open tells nothing.
        """
        meters = [
            (meter, reservation.cost.amount(name)) for name, meter in self._windows.items() if meter.profile
        ]
        sliding = max((meter.sliding(amount, reservation.at) for meter, amount in meters), default=0.0)
        if self.profile.counting is not None or sliding <= reservation.at:
            return False
        if opens_at is None:
            return self.profile.refused_probe(reservation.at)
        filling = max(meter.filling(amount, reservation.at) for meter, amount in meters)
        self.profile.observe(opens_at, sliding, filling)
        return True

    def refused(self, reservation: Reservation, hint: float, took: float, *, told: bool = True) -> None:
        """A refusal without a name, or of a limit that was kept to: it tells of the requests in a time.

        `hint` is how long after its sending the call would have been admitted, if the provider `told`.
        """
        if self._estimator is not None:
            self._estimator.refused(reservation.at, hint, took, told)
            off = self._token_estimator.refused(
                self._past, reservation, reservation.at + hint, kept=self.weight() is not None
            )
            if off is not None:
                self.profile.weighed(*off)
            self._adopt(refused=True)
        elif not self.profile.mistaken():
            self._tighten()

    def refused_again(self, reservation: Reservation, hint: float) -> None:
        """A refusal beside the last one: all that it can say is whether refused calls count."""
        if self._estimator is not None:
            self._estimator.refused_again(reservation.at + hint)
            off = self._token_estimator.refused_again(reservation, reservation.at + hint)
            if off is not None:
                self.profile.weighed(*off)

    def short_hint(self) -> float:
        """What hints leave out where refused calls count: the place that the refused call took."""
        per_second = self.per_second()
        return 1.0 / per_second if self.profile.refused_count and per_second else 0.0

    def _tighten(self) -> None:
        """The limit is known, and was kept to: it is enforced in smaller portions than it is named."""
        meter = self._windows[Dimension.REQUESTS]
        amount = meter.rate.amount // 2
        if amount >= 1:
            meter.change(Rate(amount, meter.rate.seconds * amount / meter.rate.amount))

    def _counts_tokens(self) -> bool:
        """Whether tokens, of which nobody has named a limit, explain the refusals better than calls."""
        return (
            self._token_estimator.per_second is not None
            and self._estimator is not None
            and self._estimator.window is None
            and isinstance(self._windows.get(Dimension.TOKENS), TokenBucket | None)
            and self.profile.counts_tokens
        )

    # What was found out.

    def per_second(self) -> float | None:
        """The rate that was found without being told, worth keeping for the next run."""
        return self._estimator.per_second if self._estimator else None

    def window(self) -> float | None:
        """The seconds within which that rate may be used up at once; None if it has to be sent evenly."""
        return self._estimator.window if self._estimator else None

    def weight(self) -> Rate | None:
        """The largest call, and in what time as many tokens are admitted, if tokens are what is counted."""
        if not isinstance(self._windows.get(Dimension.TOKENS), TokenBucket):
            return None
        return self._token_estimator.measured

    def merge(self, per_second: float, window: float | None = None, weight: Rate | None = None) -> None:
        """What another run found out: a beginning, grown or corrected like one's own."""
        if self._estimator is not None:
            self._estimator.merge(per_second, window)
            if weight is not None:
                self._token_estimator.merge(weight.per_second, weight.amount)
                self.profile.weighed(by_calls=1.0, by_tokens=0.0)
            self._adopt()

    def _adopt(self, *, refused: bool = False) -> None:
        """Sends by what was found out: evenly by weight, evenly by calls, or so many calls in a window."""
        if self._estimator is None:
            return
        weighed = self._windows.get(Dimension.TOKENS)
        if self._counts_tokens():
            self._windows.pop(Dimension.REQUESTS, None)
            if isinstance(weighed, TokenBucket) and not refused:
                weighed.change(self._token_estimator.rate)
            else:
                self._windows[Dimension.TOKENS] = self._token_estimator.meter()
            return
        if isinstance(weighed, TokenBucket):
            del self._windows[Dimension.TOKENS]
        rate = self._estimator.rate
        if rate is None:
            self._windows.pop(Dimension.REQUESTS, None)
        elif self._estimator.window is not None:
            self._windows[Dimension.REQUESTS] = self._filled(Dimension.REQUESTS, UsageWindow(rate))
        else:
            self._windows.setdefault(Dimension.REQUESTS, UsageWindow(rate)).change(rate)
