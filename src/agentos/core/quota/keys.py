"""The keys of a pool, least recently used first, and what changes when the credentials are edited."""

import itertools
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from agentos.core.protocol.events import KeysChanged
from agentos.core.quota.buckets import Bucket, Buckets
from agentos.core.quota.credentials import Credential, KeyState
from agentos.core.quota.lease import LeaseRequest
from agentos.core.ratelimit.cooldown import Cooldown

FIRST_CALL_GRACE = 0.25  # seconds; an invalid key is refused within this time


class KeyTime(NamedTuple):
    """When a key is expected to be free, and its name."""

    at: float
    name: str


@dataclass(slots=True)
class Key:
    """A credential with its state and the calls in flight on it, ours and those of other runs.

    The first call of a key is sent alone, so that an invalid key costs one call instead of one per slot.
    A quarantine inherited from an earlier run holds only as long as the provider has other active keys.
    """

    credential: Credential
    cooldowns: list[Cooldown]
    """Those of every model used so far, by this run or another."""
    requested_cooldowns: list[Cooldown] = field(default_factory=list)
    """Those of the models that this pool is asked for."""
    leases: set[str] = field(default_factory=set)
    quarantine: str = ""
    """Why the key is quarantined; empty if it is not."""
    inherited_quarantine: bool = False
    proven: bool = False
    grace_until: float = 0.0
    buckets: dict[str, Bucket] = field(default_factory=dict)
    """Cache by model."""
    last_used: int = 0
    """Grows with each use: the least recently used key has the smallest."""

    @property
    def active(self) -> bool:
        return self.credential.enabled and not self.quarantine

    @property
    def free(self) -> bool:
        return len(self.leases) < self.credential.concurrency

    def add_lease(self, lease: str, now: float) -> None:
        if not self.proven and not self.leases:
            self.grace_until = now + FIRST_CALL_GRACE
        self.leases.add(lease)

    def set_quarantine(self, reason: str, *, inherited: bool = False) -> None:
        """Quarantine the key, or lift its quarantine with an empty reason."""
        self.quarantine, self.inherited_quarantine = reason, inherited

    def in_grace(self, now: float) -> bool:
        """Return whether the first call of the key is in flight and may still be refused."""
        return not self.proven and now < self.grace_until and bool(self.leases)

    @property
    def relevant_cooldowns(self) -> list[Cooldown]:
        """The cooldowns that decide whether the key is usable."""
        return self.requested_cooldowns or self.cooldowns

    def add_requested(self, cooldown: Cooldown) -> None:
        if all(cooldown is not known for known in self.requested_cooldowns):
            self.requested_cooldowns.append(cooldown)

    def usable(self, now: float) -> bool:
        """Return whether the key is not limited, exhausted, quarantined or disabled; it may be in use."""
        if not self.active:
            return False
        # Hot path: runs for every key at every scheduling decision.
        for cooldown in self.requested_cooldowns or self.cooldowns:
            if now >= cooldown.until and now >= cooldown.exhausted_until:
                return True
        return not self.relevant_cooldowns

    def next_allowed_at(self) -> float:
        """When a call is possible for the first of its models."""
        return min([cooldown.next_allowed_at() for cooldown in self.relevant_cooldowns], default=0.0)


class Keys:
    """All keys by name, iterated in order of last use, the least recently used first."""

    def __init__(self) -> None:
        self._by_name: OrderedDict[str, Key] = OrderedDict()
        self._by_quota: dict[str, list[Key]] = {}
        self._by_fingerprint: dict[str, list[Key]] = {}
        self._uses = itertools.count()

    def __iter__(self) -> Iterator[Key]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Key:
        return self._by_name[name]

    def names(self) -> list[str]:
        """All names in natural order: key-2 before key-10."""
        return sorted(self._by_name, key=_natural_order)

    def providers(self) -> list[str]:
        """The providers of the active keys, in order of last use."""
        return [key.credential.provider for key in self if key.active]

    # Availability.

    def state(self, name: str, now: float) -> KeyState:
        key = self[name]
        cooldowns = key.relevant_cooldowns
        if not key.credential.enabled:
            return KeyState.DISABLED
        if key.quarantine:
            return KeyState.QUARANTINED
        if cooldowns and all(cooldown.exhausted(now) for cooldown in cooldowns):
            return KeyState.EXHAUSTED
        if cooldowns and all(cooldown.exhausted(now) or cooldown.limited(now) for cooldown in cooldowns):
            return KeyState.RATE_LIMITED
        return KeyState.AVAILABLE if key.free else KeyState.RESERVED

    def is_only_active(self, name: str) -> bool:
        """Return whether no other key is usable, now or after waiting."""
        return all(key.active == (key.credential.name == name) for key in self)

    def active(self) -> list[str]:
        """The names of the keys that are usable, now or after waiting."""
        return [key.credential.name for key in self if key.active]

    def quarantined(self) -> dict[str, str]:
        """The reasons of all quarantines, by key name."""
        return {key.credential.name: key.quarantine for key in self if key.quarantine}

    def unusable(self) -> dict[str, str]:
        """Why keys are not used: rejected, or without access to the requested models."""
        found = {}
        for key in self:
            denied = [cooldown.reason for cooldown in key.relevant_cooldowns if cooldown.no_access]
            if reason := key.quarantine or "; ".join(dict.fromkeys(denied)):
                found[key.credential.name] = reason
        return found

    def usable_slots(self, now: float, providers: Collection[str] | None = None) -> int:
        """Count the slots of all usable keys (of these providers), free or in use."""
        return sum([key.credential.concurrency for key in self.usable(now, providers)])

    def all_held(self, now: float, providers: Collection[str] | None = None) -> bool:
        """Return whether every slot of every usable key (of these providers) is in use."""
        return all(not key.free for key in self.usable(now, providers))

    def usable(self, now: float, providers: Collection[str] | None = None) -> list[Key]:
        """The usable keys, of these providers or of all."""
        return [
            key
            for key in self
            if key.usable(now) and (providers is None or key.credential.provider in providers)
        ]

    def next_allowed(self, now: float, providers: Collection[str] | None = None) -> KeyTime | None:
        """When the first key in cooldown may send a call, if only a probe; None if none is in cooldown."""
        ends = [
            KeyTime(key.next_allowed_at(), key.credential.name)
            for key, _ in self._in_cooldown(now)
            if providers is None or key.credential.provider in providers
        ]
        return min([end for end in ends if end.at > now], default=None)

    def next_recovery(self, now: float) -> KeyTime | None:
        """When the first cooldown ends; the hourly probe of an exhausted day does not count."""
        ends = [KeyTime(cooldown.ends_at(), key.credential.name) for key, cooldown in self._in_cooldown(now)]
        return min([end for end in ends if end.at > now], default=None)

    def _in_cooldown(self, now: float) -> list[tuple[Key, Cooldown]]:
        return [
            (key, cooldown)
            for key in self
            for cooldown in key.relevant_cooldowns
            if not cooldown.is_over(now) and key.active
        ]

    # Lookup and changes.

    def replace(self, keys: Iterable[Key]) -> None:
        self._by_name = OrderedDict((key.credential.name, key) for key in keys)
        self._by_quota, self._by_fingerprint = {}, {}
        for key in self:
            key.last_used = next(self._uses)
            self._by_quota.setdefault(key.credential.quota, []).append(key)
            self._by_fingerprint.setdefault(key.credential.fingerprint, []).append(key)

    def mark_used(self, key: Key) -> None:
        self._by_name.move_to_end(key.credential.name)
        key.last_used = next(self._uses)

    def by_fingerprint(self) -> dict[str, Key]:
        return {key.credential.fingerprint: key for key in self}

    def current_name(self, credential: Credential) -> str | None:
        """Return the current name of the key with the credential's fingerprint; None if it was removed."""
        wanted = credential.fingerprint
        key = self._by_name.get(credential.name)
        if key is not None and (key.credential is credential or key.credential.fingerprint == wanted):
            return credential.name
        names = (name for name, key in self._by_name.items() if key.credential.fingerprint == wanted)
        return next(names, None)

    def find_by_quota(self, quota: str) -> list[Key]:
        return self._by_quota.get(quota, [])

    def find_by_fingerprint(self, fingerprint: str) -> list[Key]:
        return self._by_fingerprint.get(fingerprint, [])

    def retry_quarantined(self, provider: str) -> list[Key]:
        """Lift inherited quarantines if the provider has no other active key: a bill may have been paid.

        Return the keys that are back in use.
        """
        if any(key.active for key in self if key.credential.provider == provider):
            return []
        keys = [key for key in self if key.credential.provider == provider and key.inherited_quarantine]
        for key in keys:
            key.set_quarantine("")
        return keys


def _natural_order(name: str) -> tuple[str, int]:
    word, _, number = name.rpartition("-")
    return (word, int(number)) if number.isdigit() else (name, 0)


class RequestedModels:
    """Registers with every key which of its models this pool is asked for.

    Only the cooldowns of these models decide whether a key is usable: a model that only other runs use does not
    count, but one that was requested and not yet called with this key does.
    """

    def __init__(self, keys: Keys, buckets: Buckets) -> None:
        self._keys = keys
        self._buckets = buckets
        self._requests: dict[tuple[tuple[str, ...], tuple[str, ...]], LeaseRequest] = {}

    def add(self, request: LeaseRequest) -> None:
        models = (request.providers, request.models)
        if models not in self._requests:
            self._requests[models] = request
            self._register(request)

    def rebuild(self) -> None:
        """Register everything again after the keys were replaced."""
        for request in self._requests.values():
            self._register(request)

    def _register(self, request: LeaseRequest) -> None:
        for key in self._keys:
            if key.credential.provider in request.providers:
                bucket = self._buckets.of(key.credential, request.model_for(key.credential))
                key.add_requested(bucket.cooldown)


def diff_credentials(before: Iterable[Credential], after: Iterable[Credential]) -> KeysChanged | None:
    """Return what changed, by key name; None if nothing did.

    Keys are matched by fingerprint, so renaming a key does not count as a change.
    """
    old = {credential.fingerprint: credential for credential in before}
    new = {credential.fingerprint: credential for credential in after}
    both = [(old[found], credential) for found, credential in new.items() if found in old]
    change = KeysChanged(
        added=tuple(credential.name for found, credential in new.items() if found not in old),
        removed=tuple(credential.name for found, credential in old.items() if found not in new),
        disabled=tuple(now.name for was, now in both if was.enabled and not now.enabled),
        enabled=tuple(now.name for was, now in both if now.enabled and not was.enabled),
        changed=tuple(
            now.name for was, now in both if replace(was, name=now.name, enabled=now.enabled) != now
        ),
    )
    return None if change == KeysChanged((), ()) else change
