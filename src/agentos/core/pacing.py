"""What a bucket may send: amounts in a time, known or learnt, so that refusals hardly happen."""

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

SLACK_SHARE = 0.01
LARGEST_SLACK = 0.15
DAY = 86400.0


class Dimension(StrEnum):
    """What providers count."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    INPUT = "input tokens"
    OUTPUT = "output tokens"
    DAY = "requests a day"


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `amount` in any `seconds`: what a token bucket, a fixed and a sliding window all admit."""

    amount: float
    seconds: float

    def faster(self, factor: float) -> "Rate":
        return Rate(self.amount, self.seconds / factor)

    @property
    def per_second(self) -> float:
        return self.amount / self.seconds


@dataclass(frozen=True, slots=True)
class LimitSeen:
    """A limit that the provider has named, in a header or a refusal."""

    dimension: Dimension
    amount: float
    seconds: float = 60.0

    @property
    def rate(self) -> Rate:
        return Rate(self.amount, self.seconds)


@dataclass(frozen=True, slots=True)
class Load:
    """What one call will count for, as far as can be told before it."""

    input_tokens: int = 0
    output_tokens: int = 0

    def of(self, dimension: Dimension) -> float:
        match dimension:
            case Dimension.REQUESTS | Dimension.DAY:
                return 1.0
            case Dimension.INPUT:
                return float(self.input_tokens)
            case Dimension.OUTPUT:
                return float(self.output_tokens)
            case Dimension.TOKENS:
                return float(self.input_tokens + self.output_tokens)

    def within(self, other: "Load") -> bool:
        """Whether it counts for no more, in any dimension."""
        return self.input_tokens <= other.input_tokens and self.output_tokens <= other.output_tokens


@dataclass(slots=True)
class Spent:
    """One entry of a meter; its amount may be corrected when the truth is known."""

    at: float
    amount: float
    counts: bool = True


class Meter:
    """What was spent in the last `seconds` of a rate."""

    __slots__ = ("_log", "_sum", "rate", "slack")

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self.slack = min(SLACK_SHARE * rate.seconds, LARGEST_SLACK)
        self._log: deque[Spent] = deque()
        self._sum = 0.0

    def fits_at(self, amount: float, now: float) -> float:
        """The first moment at which this amount fits; `now` or earlier means at once."""
        self._forget(now)
        over = self._sum + amount - self.rate.amount
        if over <= 1e-9 or not self._log:
            return now
        for spent in self._log:
            over -= spent.amount
            if over <= 1e-9:
                return spent.at + self.rate.seconds + self.slack
        # It is larger than the whole rate: it goes alone.
        return self._log[-1].at + self.rate.seconds + self.slack

    def spend(self, amount: float, now: float) -> Spent:
        spent = Spent(now, amount)
        self._log.append(spent)
        self._sum += amount
        return spent

    def correct(self, spent: Spent, amount: float) -> None:
        """The call has turned out to count for something else."""
        if spent.counts:
            self._sum += amount - spent.amount
        spent.amount = amount

    def spent(self, now: float) -> float:
        self._forget(now)
        return self._sum

    def change(self, rate: Rate) -> None:
        """Another rate; what was spent counts on."""
        self.rate = rate
        self.slack = min(SLACK_SHARE * rate.seconds, LARGEST_SLACK)

    def _forget(self, now: float) -> None:
        log, horizon = self._log, now - self.rate.seconds - self.slack
        while log and log[0].at <= horizon:
            over = log.popleft()
            over.counts = False
            self._sum -= over.amount
        if not log:
            self._sum = 0.0


GROWTHS = (1.04, 2.0)
FIRST_GROWTH = 1.25
FIRST_CALLS = 2
PERIODS = (4.0, 600.0)
REFUSAL_TIME = 0.15
BELOW = 0.985
REMEMBERED = 2000


@dataclass(slots=True)
class Learner:
    """Finds a rate that nobody told: careful growth until refused, then a step back.

    A stretch begins when a rest is over and ends when the provider, having refused, would admit again.
    The calls admitted in it, over its length, are the rate that the provider keeps to. Sent evenly at
    that rate, calls pass token buckets, fixed and sliding windows alike.
    """

    per_second: float | None = None
    growth: float = FIRST_GROWTH
    period: float = PERIODS[0]
    refusal_time: float = REFUSAL_TIME
    _recent: deque[float] = field(default_factory=deque)
    _confirmed: int = 0
    _began: float | None = None
    _stretches: int = 0
    _admitted: float = 0.0
    _seconds: float = 0.0
    _changed_at: float = 0.0
    _before: float | None = None
    _hungry: bool = False

    @property
    def rate(self) -> Rate | None:
        return None if self.per_second is None else Rate(1.0, 1.0 / (BELOW * self.per_second))

    def may_send(self, now: float) -> bool:
        """While nothing is known: half as many again as are known to be admitted."""
        if self.per_second is not None:
            return True
        self._confirm(now)
        return len(self._recent) < max(FIRST_CALLS, self._confirmed // 2)

    def retry_at(self) -> float:
        """When the last call, not having been refused, can be taken for admitted."""
        return (self._recent[-1] if self._recent else 0.0) + self.refusal_time

    def sent(self, now: float) -> None:
        self._began = now if self._began is None else self._began
        self._confirm(now)
        self._recent.append(now)

    def waited(self) -> None:
        """Somebody had to wait for this rate: it is the bottleneck, and worth growing."""
        self._hungry = True

    def refused(self, sent_at: float, hint: float, took: float) -> None:
        """`hint` is how long after its sending the provider would have admitted the call."""
        self.refusal_time = min(2.0, max(0.05, 3 * took, 0.9 * self.refusal_time))
        admitted = self._confirmed + sum(1 for moment in self._recent if moment < sent_at)
        if admitted and self._began is not None:
            self._measure(admitted, sent_at + hint - self._began)
        elif self.per_second is not None:
            self.per_second *= 0.8
        self._recent.clear()
        self._confirmed = 0
        self._began = self._changed_at = sent_at + hint
        self._hungry = False

    def grow(self, now: float) -> bool:
        """Whether the rate is faster now: it was kept for a while, and somebody waits for more."""
        if self.per_second is None or not self._hungry:
            return False
        if now - self._changed_at < max(self.period, 4 / self.per_second):
            return False
        if self._before is not None:
            self.growth = min(GROWTHS[1], 1 + (self.growth - 1) * 2)
        self._before, self.per_second = self.per_second, self.per_second * self.growth
        self._changed_at, self._hungry = now, False
        return True

    def _confirm(self, now: float) -> None:
        """A refusal comes back at once: what was not refused for so long was admitted."""
        while self._recent and self._recent[0] <= now - self.refusal_time:
            self._recent.popleft()
            self._confirmed += 1

    def _measure(self, admitted: int, seconds: float) -> None:
        """The first stretch holds what had been saved up before; later ones outweigh it."""
        self._stretches += 1
        keep = 0.0 if self._stretches <= 2 else 0.5
        self._admitted = keep * self._admitted + admitted
        self._seconds = keep * self._seconds + max(seconds, 0.001)
        found = self._admitted / self._seconds
        if self._before is None:
            self.per_second = found
            return
        self.per_second = max(self._before, min(found, self.per_second or found))
        self._before = None
        self.growth = max(GROWTHS[0], 1 + (self.growth - 1) / 2)
        self.period = min(self.period * 2, PERIODS[1])


@dataclass(slots=True)
class Booking:
    """What one call was counted for; kept until its usage is known."""

    at: float
    load: Load = field(default_factory=Load)
    entries: dict[Dimension, Spent] = field(default_factory=dict)
    refused: bool = False


class Pace:
    """All meters of one bucket and model."""

    def __init__(self, rates: dict[Dimension, Rate]) -> None:
        self._meters = {dimension: Meter(rate) for dimension, rate in rates.items()}
        self._given = dict(rates)
        self._told: dict[Dimension, Rate] = {}
        self._learner = None if Dimension.REQUESTS in rates else Learner()
        self._deaf_until = float("-inf")
        self._past: deque[Booking] = deque(maxlen=REMEMBERED)

    @property
    def rates(self) -> dict[Dimension, Rate]:
        return {dimension: meter.rate for dimension, meter in self._meters.items()}

    def used(self, dimension: Dimension, now: float) -> float:
        return self._meters[dimension].spent(now)

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
            if self._learner.grow(now) and (rate := self._learner.rate):
                self._meters[Dimension.REQUESTS].change(rate)
        entries = {name: meter.spend(load.of(name), now) for name, meter in self._meters.items()}
        booking = Booking(now, load, entries)
        self._past.append(booking)
        return booking

    def settle(self, booking: Booking, used: Load) -> None:
        """The answer has come: what was estimated becomes what was used."""
        for dimension, spent in booking.entries.items():
            if dimension in self._meters and dimension not in (Dimension.REQUESTS, Dimension.DAY):
                self._meters[dimension].correct(spent, used.of(dimension))
        booking.load = used

    def tell(self, dimension: Dimension, rate: Rate) -> bool:
        """The provider has named a limit; true if that is news. What a person has set is never raised."""
        given = self._given.get(dimension)
        if self._told.get(dimension, given) == rate or (given and rate.per_second > given.per_second):
            return False
        self._told[dimension] = rate
        self._meters[dimension] = self._filled(dimension, rate)
        if dimension is Dimension.REQUESTS:
            self._learner = None
        return True

    def _filled(self, dimension: Dimension, rate: Rate) -> Meter:
        """A meter that knows what was sent before it was made, refused calls aside."""
        meter = Meter(rate)
        for booking in self._past:
            if not booking.refused:
                booking.entries[dimension] = meter.spend(booking.load.of(dimension), booking.at)
        return meter

    def give(self, rates: dict[Dimension, Rate]) -> None:
        """A person has set other rates; what was sent counts on."""
        if rates == self._given:
            return
        self._given = dict(rates)
        for dimension, rate in rates.items():
            self._told.pop(dimension, None)
            self._meters.setdefault(dimension, Meter(rate)).change(rate)
        if Dimension.REQUESTS in rates:
            self._learner = None

    def refused(self, booking: Booking, hint: float, took: float) -> None:
        """A refusal without a name: it says something about the requests in a time."""
        if booking.at <= self._deaf_until:
            return  # sent before the last refusal was known: it says nothing new
        self._deaf_until = booking.at + took
        if self._learner is None:
            self._tighten()
            return
        self._learner.refused(booking.at, hint, took)
        if (rate := self._learner.rate) is not None:
            self._meters.setdefault(Dimension.REQUESTS, Meter(rate)).change(rate)

    def _tighten(self) -> None:
        """The limit is known, and was kept to: it is enforced in smaller portions than it is named."""
        meter = self._meters[Dimension.REQUESTS]
        if meter.rate.amount >= 2:
            meter.change(
                Rate(
                    meter.rate.amount // 2, meter.rate.seconds * (meter.rate.amount // 2) / meter.rate.amount
                )
            )

    def per_second(self) -> float | None:
        """The rate that was found without being told, worth keeping for the next run."""
        return self._learner.per_second if self._learner else None

    def recall(self, per_second: float) -> None:
        """What an earlier run found out: a beginning, grown or corrected like one's own."""
        if self._learner is not None and self._learner.per_second is None:
            self._learner.per_second = per_second
            rate = self._learner.rate
            assert rate is not None
            self._meters.setdefault(Dimension.REQUESTS, Meter(rate)).change(rate)
