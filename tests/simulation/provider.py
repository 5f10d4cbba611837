"""Simulated providers: rate limits like real ones, refusals with and without retry hints, outages."""

from dataclasses import dataclass, field
from random import Random

from agentos.core.ratelimit.limits import Dimension, LimitSeen
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.offline.rate_windows import Window, WindowKind, make_window

MINUTE, DAY = 60.0, 86400.0
REFUSAL_DELAY = 0.05  # seconds


@dataclass(frozen=True, slots=True)
class Answer:
    """How long a call takes, and its refusal, if any."""

    seconds: float
    refusal: Refusal | None = None


@dataclass(slots=True)
class Quota:
    """The limits of one bucket. `hints`: refusals say when to retry; `named`: they name the limit."""

    minute: Window | None
    day: Window | None
    hints: bool
    named: bool
    advised: float = 0.0


@dataclass(slots=True)
class Provider:
    """A random provider; the seed determines its limits and answers."""

    random: Random
    latency: tuple[float, float]
    quotas: dict[str, Quota] = field(default_factory=dict)
    rejected: set[str] = field(default_factory=set)
    outages: list[tuple[float, float]] = field(default_factory=list)
    error_rate: float = 0.0
    answered: int = 0
    refused: int = 0

    @classmethod
    def random_provider(cls, random: Random) -> "Provider":
        slowest = random.choice((0.2, 5.0, 60.0))
        provider = cls(random, (slowest / 4, slowest), error_rate=random.choice((0.0, 0.0, 0.02, 0.2)))
        for _ in range(random.choice((0, 0, 1, 2))):
            begin = random.uniform(0, 600)
            provider.outages.append((begin, begin + random.uniform(5, 900)))
        return provider

    def quota(self, bucket: str) -> Quota:
        if bucket not in self.quotas:
            self.quotas[bucket] = self._random_quota()
        return self.quotas[bucket]

    def _random_quota(self) -> Quota:
        random, window = self.random, self.random.choice(list(WindowKind))
        minute = make_window(window, random.choice((2, 10, 60)), MINUTE) if random.random() < 0.5 else None
        day = make_window(WindowKind.FIXED, random.choice((5, 50)), DAY) if random.random() < 0.1 else None
        return Quota(minute, day, hints=random.random() < 0.7, named=random.random() < 0.3)

    def answer(self, key: str, bucket: str, now: float) -> Answer:
        answer = self._answer(key, bucket, now)
        self.answered += answer.refusal is None
        self.refused += answer.refusal is not None
        return answer

    def _answer(self, key: str, bucket: str, now: float) -> Answer:
        seconds = self.random.uniform(*self.latency)
        if key in self.rejected:
            return Answer(REFUSAL_DELAY, Refusal(RefusalKind.KEY_REJECTED, "401"))
        if any(begin <= now < end for begin, end in self.outages) or self.random.random() < self.error_rate:
            return Answer(seconds, Refusal(RefusalKind.PROVIDER_ERROR, "503"))
        return self._counted(self.quota(bucket), seconds, now)

    def _counted(self, quota: Quota, seconds: float, now: float) -> Answer:
        if quota.day and (wait := quota.day.wait(now, 1)) > 0:
            refusal = Refusal(RefusalKind.DAY_EXHAUSTED, "429 PerDay", None, wait)
            return Answer(REFUSAL_DELAY, refusal)
        if quota.minute and (wait := quota.minute.wait(now, 1)) > 0:
            limit = LimitSeen(Dimension.REQUESTS, float(quota.minute.limit), MINUTE)
            hint = wait if quota.hints else None
            if hint is not None:
                quota.advised = max(quota.advised, now + REFUSAL_DELAY + hint)
            limits = (limit,) if quota.named else ()
            return Answer(REFUSAL_DELAY, Refusal(RefusalKind.RATE_LIMITED, "429", hint, limits=limits))
        for window in (quota.minute, quota.day):
            if window:
                window.spend(now, 1)
        return Answer(seconds)
