"""The buckets: what the credentials of one quota share, for each model."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from agentos.core.protocol.peer_notes import CooldownStarted
from agentos.core.quota.credentials import Credential
from agentos.core.ratelimit.cooldown import Cooldown
from agentos.core.ratelimit.limiter import RateLimiter
from agentos.core.ratelimit.limits import Dimension
from agentos.core.ratelimit.provider_profile import ProviderProfile

EVERY_MODEL = "*"
Moves = Iterable[tuple[Credential, str | None]]


@dataclass(slots=True)
class Bucket:
    """What the credentials of one quota share, for one model."""

    limiter: RateLimiter
    cooldown: Cooldown = field(default_factory=Cooldown)

    def count_day(self, now: float) -> bool:
        """Whether the day's calls are used up only now: then it rests until they are back."""
        until = self.limiter.day_over_until(now)
        if until is None or until <= self.cooldown.spent_until:
            return False
        self.cooldown.merge(0.0, until, f"{self.limiter.rates[Dimension.DAY].amount:g} requests a day", now)
        return True


class Buckets:
    """By quota and model; made when first asked for, with what is known of their provider."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Bucket] = {}
        self._cooldowns: dict[str, list[Cooldown]] = {}
        self._resting: dict[str, CooldownStarted] = {}
        self._profiles: dict[tuple[str, str | None], ProviderProfile] = {}

    def of(self, credential: Credential, model: str) -> Bucket:
        place = (credential.quota, model)
        if place not in self._known:
            pace = RateLimiter(dict(credential.rates), self.profile(credential), credential.midnight)
            self._add(place, Bucket(pace))
            if note := self._resting.get(credential.quota):
                self._known[place].cooldown.merge(note.until, note.exhausted_until, note.reason, note.at)
        return self._known[place]

    def profile(self, credential: Credential) -> ProviderProfile:
        """Those of the provider behind this address."""
        place = (credential.provider, credential.base_url)
        if place not in self._profiles:
            self._profiles[place] = ProviderProfile()
        return self._profiles[place]

    def cooldowns(self, quota: str) -> list[Cooldown]:
        """Of all its models that were asked for; the list goes on being true."""
        return self._cooldowns.setdefault(quota, [])

    def all(self) -> dict[tuple[str, str], Bucket]:
        return dict(self._known)

    def cool_down_all_models(self, note: CooldownStarted) -> None:
        """Also for those that nobody has asked for yet."""
        self._resting[note.bucket] = note
        for rest in self.cooldowns(note.bucket):
            rest.merge(note.until, note.exhausted_until, note.reason, note.at)

    def rekey(self, moves: Moves) -> None:
        """Credentials with the quotas that they had: a bucket rests on as long as one of its keys is there."""
        known, self._known, self._cooldowns = self._known, {}, {}
        for credential, old in moves:
            for (quota, model), bucket in known.items():
                if quota == old:
                    self._rekey(credential, model, bucket, quota == credential.quota)

    def _rekey(self, credential: Credential, model: str, bucket: Bucket, same: bool) -> None:
        place = (credential.quota, model)
        first = place not in self._known
        if first and same:
            self._add(place, bucket)
        kept = self.of(credential, model)
        if first:
            kept.limiter.configure(dict(credential.rates))
        rest = bucket.cooldown
        kept.cooldown.merge(rest.until, rest.spent_until, rest.reason, rest.refused_at)

    def _add(self, place: tuple[str, str], bucket: Bucket) -> None:
        self._known[place] = bucket
        self.cooldowns(place[0]).append(bucket.cooldown)
