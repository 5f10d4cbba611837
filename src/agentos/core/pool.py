"""Who gets which key, when."""

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from agentos.core.credentials import Credential, KeyState
from agentos.core.neighbours import BucketBack, BucketLearnt, BucketRefused, CallOver, CallSent, Note, RunGone
from agentos.core.pacing import Booking, Load, Pace
from agentos.core.rests import Rest
from agentos.core.secrets import Secret
from agentos.core.storm import Weather

HEAD_START = 2.0
LONGEST_PASSING = 300.0
NEVER = float("inf")
EVERY_MODEL = "*"
Affords = Callable[[str, Load], bool]


@dataclass(frozen=True, slots=True)
class Want:
    """A holder's wish for one call; it is not served before `not_before`.

    Each call that its item has behind it counts as if it had asked a little earlier, so that documents
    are finished rather than all half done; nobody starves by it.
    """

    holder: str
    call: str
    providers: tuple[str, ...]
    asked_at: float
    not_before: float = 0.0
    models: tuple[str, ...] = ()
    load: Load = field(default_factory=Load)
    behind: int = 0

    @property
    def turn(self) -> float:
        return self.asked_at - HEAD_START * self.behind

    def model(self, provider: str) -> str:
        return self.models[self.providers.index(provider)] if self.models else ""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one holder to one credential for one call."""

    id: str
    want: Want
    credential: Credential
    granted_at: float
    booking: Booking
    model: str = ""


@dataclass(slots=True)
class Bucket:
    """What the credentials of one quota share, for one model."""

    pace: Pace
    rest: Rest = field(default_factory=Rest)


@dataclass(slots=True)
class _Key:
    credential: Credential
    leases: set[str] = field(default_factory=set)
    quarantine: str = ""
    buckets: dict[str, Bucket] = field(default_factory=dict)

    @property
    def living(self) -> bool:
        return self.credential.enabled and not self.quarantine

    @property
    def free(self) -> bool:
        return len(self.leases) < self.credential.concurrency


class Pool:
    """All credentials; whoever owns it calls `grant` after anything has changed."""

    def __init__(self, credentials: Iterable[Credential]) -> None:
        # In the order of their last use: the one that has rested longest comes first.
        self._keys = OrderedDict((credential.name, _Key(credential)) for credential in credentials)
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._weathers: dict[str, Weather] = {}
        self._leases: dict[str, Lease] = {}
        self._waiting: list[Want] = []
        self._foreign: dict[str, CallSent] = {}
        self._bookings: dict[str, Booking] = {}
        self._resting: dict[str, BucketRefused] = {}
        self._numbers = itertools.count(1)
        self._next_at: float = NEVER
        self._unseen: list[Want] = []

    def __repr__(self) -> str:
        return f"<Pool {len(self._keys)} keys, {len(self._leases)} leased, {len(self._waiting)} waiting>"

    # What holders do.

    def ask(self, want: Want) -> None:
        place = len(self._waiting)
        while place and self._waiting[place - 1].turn > want.turn:
            place -= 1
        self._waiting.insert(place, want)
        self._unseen.append(want)

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

    def forget(self, holder: str) -> list[Lease]:
        """A holder is gone: its wishes and leases with it; gives what it held."""
        self._waiting = [want for want in self._waiting if want.holder != holder]
        held = [lease for lease in self._leases.values() if lease.want.holder == holder]
        for lease in held:
            self.give_back(lease.id)
        return held

    # What is learnt about keys.

    def bucket(self, name: str, model: str = "") -> Bucket:
        """What this key shares with the others of its quota, for this model."""
        return self._bucket(self._keys[name].credential, model)

    def rest(self, name: str, model: str = "") -> Rest:
        return self.bucket(name, model).rest

    def weather(self, provider: str) -> Weather:
        return self._weathers.setdefault(provider, Weather())

    def quarantine(self, name: str, reason: str) -> None:
        self._keys[name].quarantine = reason

    def replace(self, credentials: Iterable[Credential]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Takes the new list; names what was added and what is gone. The secret, not the name, is the key."""
        fresh = {credential.secret: credential for credential in credentials}
        before = {key.credential.secret: key for key in self._keys.values()}
        self._keys = OrderedDict(
            (credential.name, self._carried(credential)) for credential in fresh.values()
        )
        self._carry_rests(fresh, before)
        return (
            tuple(credential.name for secret, credential in fresh.items() if secret not in before),
            tuple(key.credential.name for secret, key in before.items() if secret not in fresh),
        )

    def known_as(self, credential: Credential) -> str | None:
        """The name that this credential's secret has now; None if it is gone."""
        if (key := self._keys.get(credential.name)) and key.credential.secret == credential.secret:
            return credential.name
        names = (name for name, key in self._keys.items() if key.credential.secret == credential.secret)
        return next(names, None)

    def _carry_rests(self, fresh: dict[Secret, Credential], before: dict[Secret, _Key]) -> None:
        """A bucket rests on as long as one of its keys is still there, whatever it is called now."""
        known, self._buckets = self._buckets, {}
        for secret, credential in fresh.items():
            old = before[secret].credential.quota if secret in before else None
            for (quota, model), bucket in known.items():
                if quota == old:
                    first = (credential.quota, model) not in self._buckets
                    kept = self._bucket(credential, model) if quota != credential.quota else bucket
                    if first:
                        kept.pace.give(dict(credential.rates))
                    rest = bucket.rest
                    kept.rest.recall(rest.until, rest.spent_until, rest.reason, rest.refused_at)
                    self._buckets[credential.quota, model] = kept

    def _carried(self, credential: Credential) -> _Key:
        """With the calls that are still under way, also those of a key that was gone for a while."""
        held = {lease.id for lease in self._leases.values() if lease.credential.secret == credential.secret}
        far = {lease for lease, call in self._foreign.items() if call.key == credential.fingerprint}
        return _Key(credential, held | far)

    # What other runs on this host do.

    def hear(self, note: Note) -> None:
        """Another run's calls hold slots and count; its refusals and findings are ours too."""
        match note:
            case CallSent():
                self._hear_sent(note)
            case CallOver():
                self._hear_over(note)
            case RunGone():
                for lease in [lease for lease in self._foreign if self._foreign[lease].run == note.run]:
                    self._hear_over(CallOver(note.run, lease))
            case BucketRefused() | BucketBack() | BucketLearnt():
                self._hear_bucket(note)

    def foreign_runs(self) -> set[str]:
        """The other runs that hold one of our keys."""
        return {call.run for call in self._foreign.values()}

    def _hear_sent(self, note: CallSent) -> None:
        lease = f"{note.run} {note.lease}"
        self._foreign[lease] = note
        for key in self._keys.values():
            if key.credential.fingerprint == note.key:
                key.leases.add(lease)
        if (bucket := self._known_bucket(note.bucket, note.model)) is not None:
            self._bookings[lease] = bucket.pace.book(note.load, note.at)

    def _hear_over(self, note: CallOver) -> None:
        lease = note.lease if note.lease in self._foreign else f"{note.run} {note.lease}"
        sent, booking = self._foreign.pop(lease, None), self._bookings.pop(lease, None)
        for key in self._keys.values():
            key.leases.discard(lease)
        if sent and booking and (bucket := self._known_bucket(sent.bucket, sent.model)) is not None:
            bucket.pace.settle(booking, note.used if note.used != Load() else sent.load)

    def _hear_bucket(self, note: BucketRefused | BucketBack | BucketLearnt) -> None:
        if isinstance(note, BucketRefused) and note.model == EVERY_MODEL:
            self._put_to_rest(note)
        bucket = self._known_bucket(note.bucket, note.model)
        if bucket is None:
            return
        match note:
            case BucketRefused():
                bucket.rest.recall(note.until, note.spent_until, note.reason, note.at)
            case BucketBack():
                bucket.rest.clear()
            case BucketLearnt():
                for limit in note.limits:
                    bucket.pace.tell(limit.dimension, limit.rate)
                if note.per_second is not None:
                    bucket.pace.recall(note.per_second)

    def _put_to_rest(self, note: BucketRefused) -> None:
        """For every model, also those that nobody has asked for yet."""
        self._resting[note.bucket] = note
        for (quota, _), bucket in self._buckets.items():
            if quota == note.bucket:
                bucket.rest.recall(note.until, note.spent_until, note.reason, note.at)

    def _known_bucket(self, quota: str, model: str) -> Bucket | None:
        for key in self._keys.values():
            if key.credential.quota == quota:
                return self._bucket(key.credential, model)
        return None

    # The decision.

    def grant(self, now: float, affords: Affords | None = None) -> list[Lease]:
        """Serves, in the order of their turns, every wish that a key can serve, and the purse pay, now."""
        granted: list[Lease] = []
        blocked: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Load]] = {}
        self._next_at = NEVER
        self._unseen.clear()
        for want in list(self._waiting):
            if want.not_before > now:
                self._next_at = min(self._next_at, want.not_before)
                continue
            before = blocked.setdefault((want.providers, want.models), [])
            if any(load.within(want.load) for load in before):
                continue
            key = self._best(want, now)
            if key and affords and not affords(self._model(key, want), want.load):
                break
            if key is not None:
                self._waiting.remove(want)
                granted.append(self._lease(want, key, now))
            else:
                # After so long, smaller ones pass it no more: else it might wait for ever.
                before.append(want.load if now - want.asked_at < LONGEST_PASSING else Load())
        return granted

    def _best(self, want: Want, now: float) -> _Key | None:
        """The key that has rested longest, of the first provider that has a usable one."""
        for provider in want.providers:
            usable = False
            for key in self._keys.values():
                if not key.living or key.credential.provider != provider:
                    continue
                at = self._opens_at(key, want, now)
                if at <= now and key.free:
                    return key
                usable = usable or self._can_soon(key, want, now)
                if key.free:
                    self._next_at = min(self._next_at, at)
            if usable:
                return None
        return None

    def _can_soon(self, key: _Key, want: Want, now: float) -> bool:
        """Whether the key is only busy or paced, so that its provider is worth waiting for."""
        rest = self._bucket_of(key, self._model(key, want)).rest
        return (
            self.weather(key.credential.provider).began is None
            and not rest.limited(now)
            and not rest.spent(now)
        )

    def _opens_at(self, key: _Key, want: Want, now: float) -> float:
        weather = self.weather(key.credential.provider)
        if not weather.lets_through(now):
            return weather.open_until if weather.open_until > now else NEVER
        bucket = self._bucket_of(key, self._model(key, want))
        if bucket.rest.closed(now):
            return bucket.rest.opens_at()
        if bucket.rest.spent(now) and key.leases:
            return bucket.rest.spent_until
        return bucket.pace.opens_at(want.load, now)

    def _model(self, key: _Key, want: Want) -> str:
        return key.credential.model or want.model(key.credential.provider)

    def _lease(self, want: Want, key: _Key, now: float) -> Lease:
        model = self._model(key, want)
        bucket = self._bucket_of(key, model)
        booking = bucket.pace.book(want.load, now)
        lease = Lease(f"lease-{next(self._numbers)}", want, key.credential, now, booking, model)
        key.leases.add(lease.id)
        self._keys.move_to_end(key.credential.name)
        self.weather(key.credential.provider).sent()
        bucket.rest.proved(now)
        if bucket.rest.spent(now):
            bucket.rest.probed(now)
        self._leases[lease.id] = lease
        return lease

    # What can be seen.

    def state(self, name: str, now: float) -> KeyState:
        key = self._keys[name]
        if not key.credential.enabled:
            return KeyState.DISABLED
        if key.quarantine:
            return KeyState.QUARANTINED
        rests = self._rests_of(key)
        if rests and all(rest.spent(now) for rest in rests):
            return KeyState.EXHAUSTED
        if rests and all(rest.spent(now) or rest.limited(now) for rest in rests):
            return KeyState.RATE_LIMITED
        return KeyState.AVAILABLE if key.free else KeyState.RESERVED

    def names(self) -> list[str]:
        return sorted(self._keys, key=_natural)

    def providers(self) -> list[str]:
        """Of the living keys, in the order in which they were given."""
        return [self._keys[name].credential.provider for name in self._keys if self._keys[name].living]

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

    def all_held(self, now: float) -> bool:
        """Whether every usable slot is in use."""
        return all(not key.free for key in self._keys.values() if self._usable(key, now))

    def living(self) -> list[str]:
        """Keys that are usable now or will be by waiting."""
        return [name for name, key in self._keys.items() if key.living]

    def quarantined(self) -> dict[str, str]:
        return {name: key.quarantine for name, key in self._keys.items() if key.quarantine}

    def earliest(self, now: float) -> tuple[float, str] | None:
        """When, by waiting alone, the first resting key can serve again, and which."""
        ends = [
            (min(rest.opens_at() for rest in self._rests_of(key)), name)
            for name, key in self._keys.items()
            if key.living and self._rests_of(key)
        ]
        return min(((at, name) for at, name in ends if at > now), default=None)

    def back_at(self, now: float) -> tuple[float, str] | None:
        """When the first resting key can be counted on again, and which."""
        ends = [
            (min(rest.back_at() for rest in self._rests_of(key)), name)
            for name, key in self._keys.items()
            if key.living and self._rests_of(key)
        ]
        return min(((at, name) for at, name in ends if at > now), default=None)

    def back_for(self, want: Want, now: float) -> tuple[float, str] | None:
        """When, by waiting alone, a key that this wish may use does not rest, and which; None without one."""
        ends = []
        for name, key in self._keys.items():
            if key.living and key.credential.provider in want.providers:
                rest = self._bucket_of(key, self._model(key, want)).rest
                ends.append((max(now, rest.opens_at()) if rest.closed(now) else now, name))
        return min(ends, default=None)

    def more_usable_at(self, now: float) -> float | None:
        """When, by waiting alone, a key is not limited or spent any more."""
        rests = [rest for key in self._keys.values() if key.living for rest in self._rests_of(key)]
        ends = [max(rest.until, rest.spent_until) for rest in rests]
        return min((end for end in ends if end > now), default=None)

    def wake_at(self, now: float) -> float | None:
        """The next moment at which a waiting wish might be served without anything else happening."""
        if not self._waiting:
            return None
        moments = [self._next_at] + [self._soonest(want, now) for want in self._unseen]
        soonest = min(moments)
        return None if soonest == NEVER else max(soonest, now)

    def _soonest(self, want: Want, now: float) -> float:
        if want.not_before > now:
            return want.not_before
        fitting = (
            key
            for key in self._keys.values()
            if key.living and key.free and key.credential.provider in want.providers
        )
        return min((self._opens_at(key, want, now) for key in fitting), default=NEVER)

    def storms(self) -> list[tuple[str, float]]:
        """The providers that fail for everybody, and since when."""
        return [
            (name, weather.began) for name, weather in self._weathers.items() if weather.began is not None
        ]

    def buckets(self) -> dict[tuple[str, str], Bucket]:
        return dict(self._buckets)

    def _usable(self, key: _Key, now: float) -> bool:
        rests = self._rests_of(key)
        return key.living and (
            not rests or any(not rest.limited(now) and not rest.spent(now) for rest in rests)
        )

    def _rests_of(self, key: _Key) -> list[Rest]:
        quota = key.credential.quota
        return [bucket.rest for (name, _), bucket in self._buckets.items() if name == quota]

    def _bucket_of(self, key: _Key, model: str) -> Bucket:
        """The same as `_bucket`, remembered: this is asked for every key at every decision."""
        if model not in key.buckets:
            key.buckets[model] = self._bucket(key.credential, model)
        return key.buckets[model]

    def _bucket(self, credential: Credential, model: str) -> Bucket:
        place = (credential.quota, model)
        if place not in self._buckets:
            bucket = self._buckets[place] = Bucket(Pace(dict(credential.rates)))
            if note := self._resting.get(credential.quota):
                bucket.rest.recall(note.until, note.spent_until, note.reason, note.at)
        return self._buckets[place]


def _natural(name: str) -> tuple[str, int]:
    word, _, number = name.rpartition("-")
    return (word, int(number)) if number.isdigit() else (name, 0)
