"""What a bucket may send: amounts in a time, known or learnt, so that refusals hardly happen."""

from collections import deque

from agentos.core.bookings import Booking
from agentos.core.learner import Learner
from agentos.core.loads import Dimension, Load, Rate
from agentos.core.manners import Manners
from agentos.core.meters import Evenly, Meter
from agentos.core.scales import Scales

REMEMBERED = 2000
# A shorter wait is not worth finding out whether it could be spared.
WORTH_PROBING = 1.5
# A day that is over in less is waited for like any other limit.
NEARLY = 600.0
PER_CALL = (Dimension.REQUESTS, Dimension.DAY)


class Pace:
    """All meters of one bucket and model."""

    def __init__(
        self, rates: dict[Dimension, Rate], manners: Manners | None = None, midnight: float | None = None
    ) -> None:
        self.manners = manners or Manners()
        self._midnight = midnight
        self._meters = {dimension: self._meter(dimension, rate) for dimension, rate in rates.items()}
        self._given = dict(rates)
        self._told: dict[Dimension, Rate] = {}
        self._learner = None if Dimension.REQUESTS in rates else Learner(self.manners)
        self._scales = Scales()
        self._deaf_until = float("-inf")
        self._past: deque[Booking] = deque(maxlen=REMEMBERED)

    @property
    def rates(self) -> dict[Dimension, Rate]:
        return {dimension: meter.rate for dimension, meter in self._meters.items()}

    def used(self, dimension: Dimension, now: float) -> float:
        return self._meters[dimension].spent(now)

    # Before a call, and after it.

    def opens_at(self, load: Load, now: float) -> float:
        """The first moment at which a call of this load may be sent."""
        at = now
        for dimension, meter in self._meters.items():
            at = max(at, meter.fits_at(load.of(dimension), now))
        if self._learner is not None:
            if at > now:
                self._learner.waited()
            if not self._learner.may_send(now):
                at = max(at, self._learner.retry_at())
        return at

    def book(self, load: Load, now: float) -> Booking:
        if self._learner is not None:
            self._learner.sent(now)
            # Only here, so that nothing becomes possible before the moment that `opens_at` has named.
            if self._learner.grow(now):
                self._scales.grow(self.manners.growth)
                self._adopt()
        entries = {name: meter.spend(load.of(name), now) for name, meter in self._meters.items()}
        booking = Booking(now, load, entries)
        self._past.append(booking)
        return booking

    def settle(self, booking: Booking, used: Load) -> None:
        """The answer has come: what was estimated becomes what was used."""
        for dimension, spent in booking.entries.items():
            if dimension in self._meters and dimension not in PER_CALL:
                self._meters[dimension].correct(spent, used.of(dimension))
        booking.load, booking.settled = used, True
        self.manners.admitted(booking.at)
        if self._learner is not None:
            self._learner.answered(booking.at)

    def drop(self, booking: Booking) -> None:
        """The call ended in trouble: whether it was admitted is not known."""
        self.manners.dropped(booking.at)

    def probe_at(self, load: Load, now: float) -> float | None:
        """When one call may find out how the provider counts; None if that is not worth it.

        It fits into a bucket that fills evenly, while a window that slides is closed for long.
        """
        meters = [(meter, load.of(name)) for name, meter in self._meters.items() if meter.manners]
        if not any(meter.sliding(amount, now) > now + WORTH_PROBING for meter, amount in meters):
            return None
        return max(meter.filling(amount, now) for meter, amount in meters)

    # A day's calls.

    def recall_day(self, calls: int, at: float) -> None:
        """So many were sent by earlier runs, the last of them then."""
        if meter := self._meters.get(Dimension.DAY):
            meter.spend(calls, at)

    def day_over_until(self, now: float) -> float | None:
        """When calls may be sent again, if the day's are used up; None if they are not, or nearly back."""
        meter = self._meters.get(Dimension.DAY)
        until = now if meter is None else meter.fits_at(1.0, now)
        return until if until > now + NEARLY else None

    # What is told.

    def give(self, rates: dict[Dimension, Rate]) -> None:
        """A person has set other rates; what was sent counts on."""
        if rates == self._given:
            return
        self._given = dict(rates)
        for dimension, rate in rates.items():
            self._told.pop(dimension, None)
            self._meters.setdefault(dimension, self._meter(dimension, rate)).change(rate)
        if Dimension.REQUESTS in rates:
            self._learner = None

    def _meter(self, dimension: Dimension, rate: Rate) -> Meter:
        return Meter(rate, self.manners, self._midnight if dimension is Dimension.DAY else None)

    def tell(self, dimension: Dimension, rate: Rate) -> bool:
        """The provider has named a limit; true if that is news. What a person has set is never raised."""
        given = self._given.get(dimension)
        if self._told.get(dimension, given) == rate or (given and rate.per_second > given.per_second):
            return False
        self._told[dimension] = rate
        self._meters[dimension] = self._filled(dimension, self._meter(dimension, rate))
        if dimension is Dimension.REQUESTS:
            self._learner = None
        return True

    def _filled(self, dimension: Dimension, meter: Meter) -> Meter:
        """Which then knows what was sent before it was made, refused calls aside."""
        for booking in self._past:
            if not booking.refused:
                booking.entries[dimension] = meter.spend(booking.load.of(dimension), booking.at)
        return meter

    # What a refusal tells.

    def cancel(self, booking: Booking, now: float) -> bool:
        """The provider has refused the call, which then hardly counts; whether that says anything new.

        It does not if the call was sent before the last refusal was known.
        """
        fresh = booking.at > self._deaf_until
        self._deaf_until = now if fresh else self._deaf_until
        if self._learner is not None:
            self._learner.cancelled(booking.at)
        self.uncount(booking)
        return fresh

    def uncount(self, booking: Booking) -> None:
        """A refused call takes no room, unless the provider counts those too."""
        booking.refused = True
        if not self.manners.refused_count:
            for dimension, spent in booking.entries.items():
                if dimension in self._meters:
                    self._meters[dimension].correct(spent, 0.0)

    def observe(self, booking: Booking, opens_at: float | None) -> bool:
        """A refusal may have said when its limit opens; whether that tells how the provider counts.

        Asked after the refused call was cancelled. A limit that had seemed open tells nothing.
        """
        meters = [(meter, booking.load.of(name)) for name, meter in self._meters.items() if meter.manners]
        sliding = max((meter.sliding(amount, booking.at) for meter, amount in meters), default=0.0)
        if self.manners.counting is not None or sliding <= booking.at:
            return False
        if opens_at is None:
            return self.manners.refused_probe(booking.at)
        filling = max(meter.filling(amount, booking.at) for meter, amount in meters)
        self.manners.observe(opens_at, sliding, filling)
        return True

    def refused(self, booking: Booking, hint: float, took: float, *, told: bool = True) -> None:
        """A refusal without a name, or of a limit that was kept to: it tells of the requests in a time.

        `hint` is how long after its sending the call would have been admitted, if the provider `told`.
        """
        if self._learner is not None:
            self._learner.refused(booking.at, hint, took, told)
            off = self._scales.refused(self._past, booking, booking.at + hint, kept=self.weight() is not None)
            if off is not None:
                self.manners.weighed(*off)
            self._adopt(refused=True)
        elif not self.manners.mistaken():
            self._tighten()

    def refused_again(self, booking: Booking, hint: float) -> None:
        """A refusal beside the last one: all that it can say is whether refused calls count."""
        if self._learner is not None:
            self._learner.refused_again(booking.at + hint)
            off = self._scales.refused_again(booking, booking.at + hint)
            if off is not None:
                self.manners.weighed(*off)

    def short_hint(self) -> float:
        """What hints leave out where refused calls count: the place that the refused call took."""
        per_second = self.per_second()
        return 1.0 / per_second if self.manners.refused_count and per_second else 0.0

    def _tighten(self) -> None:
        """The limit is known, and was kept to: it is enforced in smaller portions than it is named."""
        meter = self._meters[Dimension.REQUESTS]
        amount = meter.rate.amount // 2
        if amount >= 1:
            meter.change(Rate(amount, meter.rate.seconds * amount / meter.rate.amount))

    def _weighs(self) -> bool:
        """Whether tokens, of which nobody has named a limit, explain the refusals better than calls."""
        return (
            self._scales.per_second is not None
            and self._learner is not None
            and self._learner.window is None
            and isinstance(self._meters.get(Dimension.TOKENS), Evenly | None)
            and self.manners.weighs
        )

    # What was found out.

    def per_second(self) -> float | None:
        """The rate that was found without being told, worth keeping for the next run."""
        return self._learner.per_second if self._learner else None

    def window(self) -> float | None:
        """The seconds within which that rate may be used up at once; None if it has to be sent evenly."""
        return self._learner.window if self._learner else None

    def weight(self) -> Rate | None:
        """The largest call, and in what time as many tokens are admitted, if tokens are what is counted."""
        if not isinstance(self._meters.get(Dimension.TOKENS), Evenly):
            return None
        return self._scales.measured

    def recall(self, per_second: float, window: float | None = None, weight: Rate | None = None) -> None:
        """What another run found out: a beginning, grown or corrected like one's own."""
        if self._learner is not None:
            self._learner.recall(per_second, window)
            if weight is not None:
                self._scales.recall(weight.per_second, weight.amount)
                self.manners.weighed(by_calls=1.0, by_tokens=0.0)
            self._adopt()

    def _adopt(self, *, refused: bool = False) -> None:
        """Sends by what was found out: evenly by weight, evenly by calls, or so many calls in a window."""
        if self._learner is None:
            return
        weighed = self._meters.get(Dimension.TOKENS)
        if self._weighs():
            self._meters.pop(Dimension.REQUESTS, None)
            if isinstance(weighed, Evenly) and not refused:
                weighed.change(self._scales.rate)
            else:
                self._meters[Dimension.TOKENS] = self._scales.meter()
            return
        if isinstance(weighed, Evenly):
            del self._meters[Dimension.TOKENS]
        rate = self._learner.rate
        if rate is None:
            self._meters.pop(Dimension.REQUESTS, None)
        elif self._learner.window is not None:
            self._meters[Dimension.REQUESTS] = self._filled(Dimension.REQUESTS, Meter(rate))
        else:
            self._meters.setdefault(Dimension.REQUESTS, Meter(rate)).change(rate)
