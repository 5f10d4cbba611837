"""What was spent of one limit, and when the next call fits into it."""

from collections import deque
from dataclasses import dataclass, field

from agentos.core.ratelimit.limits import DAY, CallCost, Dimension, Rate
from agentos.core.ratelimit.provider_profile import Counting, ProviderProfile

SLACK_SHARE = 0.01
LARGEST_SLACK = 0.15
EPSILON = 1e-9
# In less time it does not matter how a provider counts.
SHORTEST_SHAPED = 2.0


@dataclass(slots=True)
class Spent:
    """One entry of a meter; its amount may be corrected when the truth is known."""

    at: float
    amount: float
    counts: bool = True


@dataclass(slots=True)
class Reservation:
    """Kept until the call's usage is known."""

    at: float
    cost: CallCost = field(default_factory=CallCost)
    entries: dict[Dimension, Spent] = field(default_factory=dict)
    refused: bool = False
    settled: bool = False


class UsageWindow:
    """What was spent in the last `seconds` of a rate; without manners, every span of that length counts.

    With a `midnight`, nothing counts beyond the day in which it was spent.
    """

    __slots__ = ("_level", "_level_at", "_log", "_midnight", "_sum", "profile", "rate", "slack")

    def __init__(
        self, rate: Rate, profile: ProviderProfile | None = None, midnight: float | None = None
    ) -> None:
        self._midnight = midnight
        shaped = SHORTEST_SHAPED <= rate.seconds < DAY
        self.profile = profile if shaped else None
        self.change(rate)
        self._log: deque[Spent] = deque()
        self._sum = 0.0
        self._level = 0.0
        self._level_at = 0.0

    def change(self, rate: Rate) -> None:
        """Another rate; what was spent counts on."""
        self.rate = rate
        self.slack = min(SLACK_SHARE * rate.seconds, LARGEST_SLACK)

    def next_allowed_at(self, amount: float, now: float) -> float:
        """The first moment at which this amount fits; `now` or earlier means at once."""
        if self.profile is not None:
            if self.profile.counting is Counting.FIXED:
                return self.fixed(amount, now, self.profile.boundary)
            if self.profile.counting is Counting.TOKEN_BUCKET:
                return self.filling(amount, now)
        return self.sliding(amount, now)

    def sliding(self, amount: float, now: float) -> float:
        """By what was spent in the last time, whenever one looks."""
        self._forget(now)
        over = self._sum + amount - self.rate.amount
        if over <= EPSILON or not self._log:
            return now
        for spent in self._log:
            over -= spent.amount
            if over <= EPSILON:
                return self._counts_until(spent)
        # It is larger than the whole rate: it goes alone.
        return self._counts_until(self._log[-1])

    def fixed(self, amount: float, now: float, boundary: float) -> float:
        """By spans that begin at given moments; what is sent shortly before one may arrive within it."""
        self._forget(now)
        seconds = self.rate.seconds
        began = boundary + (now - self.slack - boundary) // seconds * seconds
        inside = sum(spent.amount for spent in self._log if spent.at >= began - self.slack)
        if not inside or inside + amount <= self.rate.amount + EPSILON:
            return now
        return began + seconds + self.slack

    def filling(self, amount: float, now: float) -> float:
        """By a bucket that fills evenly."""
        over = self._left(now) + min(amount, self.rate.amount) - self.rate.amount
        return now if over <= EPSILON else now + over / self._pace

    def spend(self, amount: float, now: float) -> Spent:
        spent = Spent(now, amount)
        self._log.append(spent)
        self._sum += amount
        if self.profile is not None:
            self._level, self._level_at = self._left(now) + amount, max(now, self._level_at)
        return spent

    def correct(self, spent: Spent, amount: float) -> None:
        """The call has turned out to count for something else."""
        if spent.counts:
            self._sum += amount - spent.amount
            self._level = max(0.0, self._level + amount - spent.amount)
        spent.amount = amount

    def spent(self, now: float) -> float:
        self._forget(now)
        return self._sum

    def _counts_until(self, spent: Spent) -> float:
        end = spent.at + self.rate.seconds + self.slack
        return end if self._midnight is None else min(end, self._day_began(spent.at) + DAY)

    def _day_began(self, at: float) -> float:
        midnight = self._midnight or 0.0
        return midnight + (at - midnight) // DAY * DAY

    @property
    def _pace(self) -> float:
        return self.rate.per_second * (1 - SLACK_SHARE)

    def _left(self, now: float) -> float:
        """What has not run off yet."""
        return max(0.0, self._level - max(0.0, now - self._level_at) * self._pace)

    def _forget(self, now: float) -> None:
        log, horizon = self._log, now - self.rate.seconds - self.slack
        if self._midnight is not None:
            horizon = max(horizon, self._day_began(now) - EPSILON)
        while log and log[0].at <= horizon:
            over = log.popleft()
            over.counts = False
            self._sum -= over.amount
        if not log:
            self._sum = 0.0


class TokenBucket(UsageWindow):
    """A bucket that fills evenly and holds `amount`: the largest call, and no more."""

    __slots__ = ()

    def __init__(self, rate: Rate, level: float, at: float) -> None:
        """Which has `level` in it at a moment, perhaps one to come."""
        super().__init__(rate)
        self._level, self._level_at = level, at

    def next_allowed_at(self, amount: float, now: float) -> float:
        return self.filling(amount, now)

    @property
    def _pace(self) -> float:
        """A rate that was found is below the true one already."""
        return self.rate.per_second

    def spend(self, amount: float, now: float) -> Spent:
        self._level, self._level_at = self._left(now) + amount, max(now, self._level_at)
        return super().spend(amount, now)
