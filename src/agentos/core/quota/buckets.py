"""Buckets: the rate limiter and the cooldown that the keys of one quota share, for each model."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from agentos.core.protocol.peer_notes import CooldownStarted
from agentos.core.quota.credentials import Credential
from agentos.core.ratelimit.cooldown import Cooldown
from agentos.core.ratelimit.limiter import RateLimiter
from agentos.core.ratelimit.limits import Dimension
from agentos.core.ratelimit.provider_profile import ProviderProfile

EVERY_MODEL = "*"
QuotaMoves = Iterable[tuple[Credential, str | None]]
"""Credentials, each with the quota that it had before an edit; None for a new one."""


@dataclass(slots=True)
class Bucket:
    """What the keys of one quota share for one model: providers limit a quota, not a key."""

    limiter: RateLimiter
    cooldown: Cooldown = field(default_factory=Cooldown)

    def check_day(self, now: float) -> bool:
        """Start a cooldown if our own count says that the daily limit is used up; return whether it started."""
        until = self.limiter.day_exhausted_until(now)
        if until is None or until <= self.cooldown.exhausted_until:
            return False
        self.cooldown.merge(0.0, until, f"{self.limiter.rates[Dimension.DAY].amount:g} requests a day", now)
        return True


class Buckets:
    """All buckets by quota and model; each is created on first use, with its provider's profile."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._cooldowns: dict[str, list[Cooldown]] = {}
        self._cooling_quotas: dict[str, CooldownStarted] = {}
        self._profiles: dict[tuple[str, str | None], ProviderProfile] = {}

    def of(self, credential: Credential, model: str) -> Bucket:
        key = (credential.quota, model)
        if key not in self._buckets:
            limiter = RateLimiter(dict(credential.rates), self.profile(credential), credential.midnight)
            self._add(key, Bucket(limiter))
            if note := self._cooling_quotas.get(credential.quota):
                self._buckets[key].cooldown.merge(note.until, note.exhausted_until, note.reason, note.at)
        return self._buckets[key]

    def profile(self, credential: Credential) -> ProviderProfile:
        """Return the profile of the provider at this credential's address."""
        key = (credential.provider, credential.base_url)
        if key not in self._profiles:
            self._profiles[key] = ProviderProfile()
        return self._profiles[key]

    def revision(self, provider: str) -> object:
        """A value that changes whenever a finding of one key may change when the provider's other keys open."""
        return [profile.revision for (name, _), profile in self._profiles.items() if name == provider]

    def cooldowns(self, quota: str) -> list[Cooldown]:
        """Return the cooldowns of all models used so far; the list is live and grows with new models."""
        return self._cooldowns.setdefault(quota, [])

    def all(self) -> dict[tuple[str, str], Bucket]:
        return dict(self._buckets)

    def cool_down_all_models(self, note: CooldownStarted) -> None:
        """Cool down a quota for every model, including those not used yet."""
        self._cooling_quotas[note.bucket] = note
        for cooldown in self.cooldowns(note.bucket):
            cooldown.merge(note.until, note.exhausted_until, note.reason, note.at)

    def rekey(self, moves: QuotaMoves) -> None:
        """Reassign the buckets after an edit of the credentials.

        A cooldown continues as long as one key of its quota is left, even if that key moved to another quota.
        """
        old_buckets, self._buckets, self._cooldowns = self._buckets, {}, {}
        for credential, old_quota in moves:
            for (quota, model), bucket in old_buckets.items():
                if quota == old_quota:
                    self._move(credential, model, bucket, same_quota=quota == credential.quota)

    def _move(self, credential: Credential, model: str, bucket: Bucket, *, same_quota: bool) -> None:
        key = (credential.quota, model)
        is_first = key not in self._buckets
        if is_first and same_quota:
            self._add(key, bucket)
        target = self.of(credential, model)
        if is_first:
            target.limiter.configure(dict(credential.rates))
        old = bucket.cooldown
        target.cooldown.merge(
            old.until, old.exhausted_until, old.reason, old.refused_at, no_access=old.no_access
        )

    def _add(self, key: tuple[str, str], bucket: Bucket) -> None:
        self._buckets[key] = bucket
        self.cooldowns(key[0]).append(bucket.cooldown)
