"""Who gets which key, when."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from agentos.core.credentials import Credential, KeyState
from agentos.core.rests import Rest
from agentos.core.secrets import Secret
from agentos.core.storm import Weather


@dataclass(frozen=True, slots=True)
class Want:
    """A holder's wish for one call; it is not served before `not_before`."""

    holder: str
    call: str
    providers: tuple[str, ...]
    asked_at: float
    not_before: float = 0.0


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one holder to one credential for one call."""

    id: str
    want: Want
    credential: Credential
    granted_at: float


@dataclass(slots=True)
class _Key:
    credential: Credential
    leases: set[str] = field(default_factory=set)
    last_granted: float = float("-inf")
    quarantine: str = ""

    @property
    def living(self) -> bool:
        return self.credential.enabled and not self.quarantine

    @property
    def free(self) -> bool:
        return len(self.leases) < self.credential.concurrency


class Pool:
    """All credentials; whoever owns it calls `grant` after anything has changed."""

    def __init__(self, credentials: Iterable[Credential]) -> None:
        self._keys = {credential.name: _Key(credential) for credential in credentials}
        self._rests: dict[str, Rest] = {}
        self._weathers: dict[str, Weather] = {}
        self._leases: dict[str, Lease] = {}
        self._waiting: list[Want] = []
        self._numbers = itertools.count(1)

    def __repr__(self) -> str:
        return f"<Pool {len(self._keys)} keys, {len(self._leases)} leased, {len(self._waiting)} waiting>"

    # What holders do.

    def ask(self, want: Want) -> None:
        self._waiting.append(want)

    def give_back(self, lease_id: str) -> Lease | None:
        """Ends a lease; one that is not held any more is ignored."""
        lease = self._leases.pop(lease_id, None)
        if lease is None:
            return None
        if name := self.known_as(lease.credential):
            self._keys[name].leases.discard(lease_id)
        # Whatever it brought, and if its holder died: the next probe of a storm may go.
        self.weather(lease.credential.provider).probing = False
        return lease

    def forget(self, holder: str) -> None:
        """A holder is gone: its wishes and leases with it."""
        self._waiting = [want for want in self._waiting if want.holder != holder]
        for lease in [lease for lease in self._leases.values() if lease.want.holder == holder]:
            self.give_back(lease.id)

    # What is learnt about keys.

    def rest(self, name: str) -> Rest:
        """The rest of the bucket that this key belongs to."""
        return self._rests.setdefault(self._keys[name].credential.quota, Rest())

    def weather(self, provider: str) -> Weather:
        return self._weathers.setdefault(provider, Weather())

    def quarantine(self, name: str, reason: str) -> None:
        self._keys[name].quarantine = reason

    def replace(self, credentials: Iterable[Credential]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Takes the new list; names what was added and what is gone. The secret, not the name, is the key."""
        fresh = {credential.secret: credential for credential in credentials}
        before = {key.credential.secret: key for key in self._keys.values()}
        self._rests = self._carried_rests(fresh.values(), before)
        self._keys = {credential.name: self._carried_key(credential, before) for credential in fresh.values()}
        return (
            tuple(credential.name for secret, credential in fresh.items() if secret not in before),
            tuple(key.credential.name for secret, key in before.items() if secret not in fresh),
        )

    def known_as(self, credential: Credential) -> str | None:
        """The name that this credential's secret has now; None if it is gone."""
        names = (name for name, key in self._keys.items() if key.credential.secret == credential.secret)
        return next(names, None)

    def _carried_key(self, credential: Credential, before: dict[Secret, _Key]) -> _Key:
        """With the calls that are still under way, also those of a key that was gone for a while."""
        held = {lease.id for lease in self._leases.values() if lease.credential.secret == credential.secret}
        old = before.get(credential.secret)
        return _Key(credential, held, old.last_granted if old else float("-inf"))

    def _carried_rests(
        self, credentials: Iterable[Credential], before: dict[Secret, _Key]
    ) -> dict[str, Rest]:
        """A bucket rests on as long as one of its keys is still there."""
        rests: dict[str, Rest] = {}
        for credential in credentials:
            if key := before.get(credential.secret):
                known = [replace(self._rest_of(key)), rests.get(credential.quota, Rest())]
                rests[credential.quota] = max(known, key=Rest.opens_at)
        return rests

    # The decision.

    def grant(self, now: float) -> list[Lease]:
        """Serves, in the order of asking, every wish that a key can serve now."""
        granted = []
        for want in list(self._waiting):
            key = self._best(want, now) if want.not_before <= now else None
            if key:
                self._waiting.remove(want)
                granted.append(self._lease(want, key, now))
        return granted

    def _best(self, want: Want, now: float) -> _Key | None:
        fits = [key for key in self._keys.values() if key.free and self._can_serve(key, want, now)]
        return min(fits, key=lambda key: key.last_granted, default=None)

    def _can_serve(self, key: _Key, want: Want, now: float) -> bool:
        return (
            key.living
            and key.credential.provider in want.providers
            and self.weather(key.credential.provider).lets_through(now)
            and not self._rest_of(key).closed(now)
            and not (self._rest_of(key).spent(now) and key.leases)
        )

    def _lease(self, want: Want, key: _Key, now: float) -> Lease:
        lease = Lease(f"lease-{next(self._numbers)}", want, key.credential, now)
        key.leases.add(lease.id)
        key.last_granted = now
        self.weather(key.credential.provider).sent()
        if self._rest_of(key).spent(now):
            self._rest_of(key).probed(now)
        self._leases[lease.id] = lease
        return lease

    # What can be seen.

    def state(self, name: str, now: float) -> KeyState:
        key = self._keys[name]
        if not key.credential.enabled:
            return KeyState.DISABLED
        if key.quarantine:
            return KeyState.QUARANTINED
        if self._rest_of(key).spent(now):
            return KeyState.EXHAUSTED
        if self._rest_of(key).limited(now):
            return KeyState.RATE_LIMITED
        return KeyState.AVAILABLE if key.free else KeyState.RESERVED

    def names(self) -> list[str]:
        return list(self._keys)

    def lease(self, lease_id: str) -> Lease | None:
        return self._leases.get(lease_id)

    def waiting(self, now: float) -> list[Want]:
        """Wishes that nothing but a key is missing for."""
        return [want for want in self._waiting if want.not_before <= now]

    def is_waiting(self, holder: str) -> bool:
        return any(want.holder == holder for want in self._waiting)

    def held(self) -> int:
        return len(self._leases)

    def usable_slots(self, now: float) -> int:
        """Slots of keys that are not limited, spent, quarantined or disabled, held or not."""
        return sum(key.credential.concurrency for key in self._keys.values() if self._usable(key, now))

    def living(self) -> list[str]:
        """Keys that are usable now or will be by waiting."""
        return [name for name, key in self._keys.items() if key.living]

    def quarantined(self) -> dict[str, str]:
        return {name: key.quarantine for name, key in self._keys.items() if key.quarantine}

    def earliest(self, now: float) -> tuple[float, str] | None:
        """When, by waiting alone, the first resting key can serve again, and which."""
        ends = [(self._rest_of(key).opens_at(), name) for name, key in self._keys.items() if key.living]
        return min(((at, name) for at, name in ends if at > now), default=None)

    def wake_at(self, now: float) -> float | None:
        """The next moment at which a waiting wish might be served without anything else happening."""
        if not self._waiting:
            return None
        moments = [want.not_before for want in self._waiting]
        moments.extend(weather.open_until for weather in self._weathers.values())
        if earliest := self.earliest(now):
            moments.append(earliest[0])
        if (at := self.more_usable_at(now)) is not None:
            moments.append(at)
        return min((moment for moment in moments if moment > now), default=None)

    def more_usable_at(self, now: float) -> float | None:
        """When, by waiting alone, a key is not limited or spent any more."""
        rests = [self._rest_of(key) for key in self._keys.values() if key.living]
        ends = [max(rest.until, rest.spent_until) for rest in rests]
        return min((end for end in ends if end > now), default=None)

    def storms(self) -> list[tuple[str, float]]:
        """The providers that fail for everybody, and since when."""
        return [
            (name, weather.began) for name, weather in self._weathers.items() if weather.began is not None
        ]

    def _usable(self, key: _Key, now: float) -> bool:
        rest = self._rest_of(key)
        return key.living and not rest.limited(now) and not rest.spent(now)

    def _rest_of(self, key: _Key) -> Rest:
        return self._rests.setdefault(key.credential.quota, Rest())
