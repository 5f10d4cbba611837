"""The keys of a pool, in the order of their last use."""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from agentos.core.quota.buckets import Bucket, Buckets
from agentos.core.quota.credentials import Credential, KeyState
from agentos.core.quota.lease import LeaseRequest
from agentos.core.ratelimit.cooldown import Cooldown
from agentos.core.text.secrets import Secret

# A dead key is refused within so long.
FIRST_CALL_GRACE = 0.25


@dataclass(slots=True)
class Key:
    """A credential with the calls that it carries, ours and those of other runs.

    Its first call goes alone, so that a dead key costs one call and not as many as it has slots. What an
    earlier run said of it is `hearsay`: believed as long as there are other keys.
    """

    credential: Credential
    cooldowns: list[Cooldown]
    """Of every model that is known of; `asked` are those of the models that its pool is asked for."""
    requested: list[Cooldown] = field(default_factory=list)
    leases: set[str] = field(default_factory=set)
    quarantine: str = ""
    inherited_quarantine: bool = False
    proven: bool = False
    grace_until: float = 0.0
    buckets: dict[str, Bucket] = field(default_factory=dict)

    @property
    def active(self) -> bool:
        return self.credential.enabled and not self.quarantine

    @property
    def free(self) -> bool:
        return len(self.leases) < self.credential.concurrency

    def leased_slots(self, lease: str, now: float) -> None:
        if not self.proven and not self.leases:
            self.grace_until = now + FIRST_CALL_GRACE
        self.leases.add(lease)

    def reject(self, reason: str, *, hearsay: bool = False) -> None:
        self.quarantine, self.inherited_quarantine = reason, hearsay

    def in_grace(self, now: float) -> bool:
        return not self.proven and now < self.grace_until and bool(self.leases)

    @property
    def counted(self) -> list[Cooldown]:
        """Those that say whether it is usable."""
        return self.requested or self.cooldowns

    def requested_buckets(self, rest: Cooldown) -> None:
        if all(rest is not one for one in self.requested):
            self.requested.append(rest)

    def usable(self, now: float) -> bool:
        """Not limited, spent, quarantined or disabled, held or not."""
        if not self.active:
            return False
        # Asked for every key at every decision.
        for rest in self.requested or self.cooldowns:
            if now >= rest.until and now >= rest.spent_until:
                return True
        return not self.counted

    def opens_at(self) -> float:
        """When the first of its rests lets a call through."""
        return min([rest.opens_at() for rest in self.counted], default=0.0)


class Keys:
    """The one that has rested longest comes first."""

    def __init__(self) -> None:
        self._by_name: OrderedDict[str, Key] = OrderedDict()

    def __iter__(self) -> Iterator[Key]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def __getitem__(self, name: str) -> Key:
        return self._by_name[name]

    def names(self) -> list[str]:
        return sorted(self._by_name, key=_natural)

    def providers(self) -> list[str]:
        """Of the living ones, in the order of their last use."""
        return [key.credential.provider for key in self if key.active]

    # Which can serve, and when.

    def state(self, name: str, now: float) -> KeyState:
        key = self[name]
        if not key.credential.enabled:
            return KeyState.DISABLED
        if key.quarantine:
            return KeyState.QUARANTINED
        if key.counted and all(rest.spent(now) for rest in key.counted):
            return KeyState.EXHAUSTED
        if key.counted and all(rest.spent(now) or rest.limited(now) for rest in key.counted):
            return KeyState.RATE_LIMITED
        return KeyState.AVAILABLE if key.free else KeyState.RESERVED

    def active(self) -> list[str]:
        """Those that are usable now or will be by waiting."""
        return [key.credential.name for key in self if key.active]

    def quarantined(self) -> dict[str, str]:
        return {key.credential.name: key.quarantine for key in self if key.quarantine}

    def usable_slots(self, now: float) -> int:
        """Slots of those that are not limited, spent, quarantined or disabled, held or not."""
        return sum([key.credential.concurrency for key in self if key.usable(now)])

    def all_held(self, now: float) -> bool:
        """Whether every usable slot is in use."""
        return all(not key.free for key in self if key.usable(now))

    def earliest(self, now: float) -> tuple[float, str] | None:
        """When, by waiting alone, the first resting one can serve again, and which."""
        ends = [(key.opens_at(), key.credential.name) for key, _ in self._resting(now)]
        return min([end for end in ends if end[0] > now], default=None)

    def first_back(self, now: float) -> tuple[float, str] | None:
        """When the first resting one can be counted on again, and which: a look at a spent day is luck."""
        ends = [(rest.back_at(), key.credential.name) for key, rest in self._resting(now)]
        return min([end for end in ends if end[0] > now], default=None)

    def more_usable_at(self, now: float) -> float | None:
        """When, by waiting alone, one is not limited or spent any more."""
        first = self.first_back(now)
        return None if first is None else first[0]

    def _resting(self, now: float) -> list[tuple[Key, Cooldown]]:
        """What living ones still have to wait for, for one of their models; mostly nothing."""
        return [(key, rest) for key in self for rest in key.counted if not rest.over(now) and key.active]

    # Which there are.

    def replace(self, keys: Iterable[Key]) -> None:
        self._by_name = OrderedDict((key.credential.name, key) for key in keys)

    def used(self, key: Key) -> None:
        self._by_name.move_to_end(key.credential.name)

    def by_secret(self) -> dict[Secret, Key]:
        return {key.credential.secret: key for key in self}

    def known_as(self, credential: Credential) -> str | None:
        """The name that this credential's secret has now; None if it is gone."""
        key = self._by_name.get(credential.name)
        if key is not None and (key.credential is credential or key.credential.secret == credential.secret):
            return credential.name
        names = (name for name, key in self._by_name.items() if key.credential.secret == credential.secret)
        return next(names, None)

    def of_quota(self, quota: str) -> Key | None:
        return next((key for key in self if key.credential.quota == quota), None)

    def of_fingerprint(self, fingerprint: str) -> list[Key]:
        return [key for key in self if key.credential.fingerprint == fingerprint]

    def retry_quarantined(self, provider: str) -> None:
        """Where no other key is left, those that were rejected in an earlier run are tried once more."""
        ours = [key for key in self if key.credential.provider == provider]
        for key in [] if any(key.active for key in ours) else ours:
            if key.inherited_quarantine:
                key.reject("")

    def free_of(self, leases: Collection[str]) -> None:
        for key in self:
            key.leases.difference_update(leases)


def _natural(name: str) -> tuple[str, int]:
    word, _, number = name.rpartition("-")
    return (word, int(number)) if number.isdigit() else (name, 0)


class RequestedModels:
    """A model that only other runs ask for makes no key usable; one that a key was not asked for yet may be."""

    def __init__(self, keys: Keys, buckets: Buckets) -> None:
        self._keys = keys
        self._buckets = buckets
        self._kinds: dict[tuple[tuple[str, ...], tuple[str, ...]], LeaseRequest] = {}

    def add(self, want: LeaseRequest) -> None:
        if want.kind not in self._kinds:
            self._kinds[want.kind] = want
            self._count(want)

    def rebuild(self) -> None:
        """The keys are others now."""
        for want in self._kinds.values():
            self._count(want)

    def _count(self, want: LeaseRequest) -> None:
        for key in self._keys:
            if key.credential.provider in want.providers:
                model = key.credential.model or want.model(key.credential.provider)
                key.requested_buckets(self._buckets.of(key.credential, model).cooldown)
