"""Who gets which key, when."""

import bisect
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable

from agentos.core.protocol.peer_notes import Note
from agentos.core.quota.buckets import Bucket, Buckets
from agentos.core.quota.credentials import Credential
from agentos.core.quota.keys import Key, Keys, RequestedModels
from agentos.core.quota.lease import Lease, LeaseRequest
from agentos.core.quota.peer_state import PeerState
from agentos.core.ratelimit.circuit_breaker import CircuitBreaker
from agentos.core.ratelimit.limits import CallCost

LONGEST_PASSING = 1.0
NEVER = float("inf")
Affords = Callable[[str, CallCost], bool]
Kind = tuple[tuple[str, ...], tuple[str, ...]]


class Pool:
    """All credentials; whoever owns it calls `grant` after anything has changed."""

    def __init__(self, credentials: Iterable[Credential]) -> None:
        self.keys = Keys()
        self._buckets = Buckets()
        self._requested_models = RequestedModels(self.keys, self._buckets)
        self._breakers: defaultdict[str, CircuitBreaker] = defaultdict(CircuitBreaker)
        self._peers = PeerState(self.keys, self._buckets, self._breakers)
        self._leases: dict[str, Lease] = {}
        self._waiting: list[LeaseRequest] = []
        self._numbers = itertools.count(1)
        self._next_at: float = NEVER
        self._unconfirmed_peers: list[LeaseRequest] = []
        self.keys.replace([self._key(credential) for credential in credentials])

    def __repr__(self) -> str:
        return f"<Pool {len(self.keys)} keys, {len(self._leases)} leased, {len(self._waiting)} waiting>"

    # What holders do.

    def request(self, want: LeaseRequest) -> None:
        bisect.insort(self._waiting, want, key=lambda one: one.priority)
        self._unconfirmed_peers.append(want)
        self._requested_models.add(want)

    def skip_backoff(self, provider: str, now: float) -> None:
        """It serves again: nobody who may use it waits out a back-off any more."""
        self._waiting = [
            want._replace(not_before=min(want.not_before, now)) if provider in want.providers else want
            for want in self._waiting
        ]

    def release(self, lease_id: str) -> Lease | None:
        """Ends a lease; one that is not held any more is ignored."""
        lease = self._leases.pop(lease_id, None)
        if lease is None:
            return None
        if name := self.known_as(lease.credential):
            self.keys[name].leases.discard(lease_id)
        self.breaker(lease.credential.provider).over(lease_id)
        return lease

    def drop_holder(self, holder: str) -> list[Lease]:
        """A holder is gone: its wishes and leases with it; gives what it held."""
        self._waiting = [want for want in self._waiting if want.holder != holder]
        held = [lease for lease in self._leases.values() if lease.request.holder == holder]
        for lease in held:
            self.release(lease.id)
            self.bucket_of(lease).limiter.drop(lease.reservation)
        return held

    # What is learnt about keys.

    def bucket(self, name: str, model: str = "") -> Bucket:
        """What this key shares with the others of its quota, for this model."""
        return self._bucket(self.keys[name], model)

    def bucket_of(self, lease: Lease) -> Bucket:
        return self._buckets.of(lease.credential, lease.model)

    def breaker(self, provider: str) -> CircuitBreaker:
        return self._breakers[provider]

    def prove(self, name: str) -> None:
        """The key is a good one: as many calls as it has slots may go."""
        self.keys[name].proven = True

    def quarantine(self, name: str, reason: str) -> None:
        self.keys[name].reject(reason)
        self.keys.retry_quarantined(self.keys[name].credential.provider)

    def known_as(self, credential: Credential) -> str | None:
        """The name that this credential's secret has now; None if it is gone."""
        return self.keys.known_as(credential)

    def replace(self, credentials: Iterable[Credential]) -> None:
        """Takes the new list. The secret, not the name, is the key."""
        fresh = {credential.secret: credential for credential in credentials}
        before = self.keys.by_secret()
        quotas = {secret: key.credential.quota for secret, key in before.items()}
        self._buckets.rekey((credential, quotas.get(secret)) for secret, credential in fresh.items())
        self.keys.replace([self._key(credential) for credential in fresh.values()])
        for key in self.keys:
            old = before.get(key.credential.secret)
            key.proven = old is not None and old.proven
        self._requested_models.rebuild()

    def _key(self, credential: Credential) -> Key:
        """With the calls that are still under way, also those of a key that was gone for a while."""
        secret = credential.secret
        held = {lease.id for lease in self._leases.values() if lease.credential.secret == secret}
        far = self._peers.calls_on(credential.fingerprint)
        return Key(credential, self._buckets.cooldowns(credential.quota), leases=held | far)

    # What other runs on this host do.

    def apply_note(self, note: Note) -> None:
        """Another run's calls hold slots and count; its refusals and findings are ours too."""
        self._peers.apply_note(note)

    def peer_runs(self) -> set[str]:
        """The other runs that hold one of our keys."""
        return self._peers.runs()

    # The decision.

    def grant(self, now: float, affords: Affords | None = None) -> list[Lease]:
        """Serves, in the order of their turns, every wish that a key can serve, and the purse pay, now."""
        self._next_at = NEVER
        self._unconfirmed_peers.clear()
        if not self._waiting:
            return []
        granted: list[Lease] = []
        blocked: dict[Kind, list[CallCost]] = {}
        waiting, self._waiting = self._waiting, []
        for place, want in enumerate(waiting):
            if want.not_before > now:
                self._next_at = min(self._next_at, want.not_before)
            elif (before := blocked.get(want.kind)) and any(load.within(want.cost) for load in before):
                pass
            elif key := self._pick_key(want, now) or self._probed(want, now):
                if affords and not affords(self._model(key, want), want.cost):
                    self._waiting += waiting[place:]
                    break
                granted.append(self._lease(want, key, now))
                continue
            else:
                # After so long, smaller ones pass it no more: else it might wait for ever.
                passable = now - want.requested_at < LONGEST_PASSING
                blocked.setdefault(want.kind, []).append(want.cost if passable else CallCost())
            self._waiting.append(want)
        return granted

    def _pick_key(self, want: LeaseRequest, now: float) -> Key | None:
        """The key that has rested longest, of the first provider that has a usable one."""
        for provider in want.providers:
            usable = False
            for key in self.keys:
                if key.credential.provider != provider or not key.active:
                    continue
                at, free = self._opens_at(key, want, now), key.free
                if free and at <= now:
                    return key
                usable = usable or self._can_soon(key, want, now)
                if free:
                    self._next_at = min(self._next_at, at)
            if usable:
                return None
        return None

    def _probed(self, want: LeaseRequest, now: float) -> Key | None:
        """A key whose limit seems used up for long, for the one call that finds out how it is counted."""
        for key in self._probable(want):
            at = self._probe_at(key, want, now)
            if at <= now:
                self._buckets.profile(key.credential).probe(now)
                return key
            self._next_at = min(self._next_at, at)
        return None

    def _probable(self, want: LeaseRequest) -> list[Key]:
        return [
            key
            for key in self.keys
            if key.active
            and key.proven
            and not key.leases
            and key.credential.provider in want.providers
            and self._buckets.profile(key.credential).may_probe
            and self.breaker(key.credential.provider).began is None
        ]

    def _probe_at(self, key: Key, want: LeaseRequest, now: float) -> float:
        bucket = self._bucket(key, self._model(key, want))
        if bucket.cooldown.closed(now) or bucket.cooldown.spent(now):
            return NEVER
        at = bucket.limiter.probe_at(want.cost, now)
        return NEVER if at is None else at

    def _can_soon(self, key: Key, want: LeaseRequest, now: float) -> bool:
        """Whether the key is only busy or paced, so that its provider is worth waiting for."""
        rest = self._bucket(key, self._model(key, want)).cooldown
        return (
            self.breaker(key.credential.provider).began is None
            and not rest.limited(now)
            and not rest.spent(now)
        )

    def _opens_at(self, key: Key, want: LeaseRequest, now: float) -> float:
        breaker = self._breakers[key.credential.provider]
        if breaker.began is not None and not breaker.allows(now):
            return breaker.open_until if breaker.open_until > now else NEVER
        bucket = self._bucket(key, self._model(key, want))
        if bucket.cooldown.closed(now):
            return bucket.cooldown.opens_at()
        if bucket.cooldown.spent(now) and key.leases:
            return bucket.cooldown.spent_until
        at = bucket.limiter.opens_at(want.cost, now)
        return max(at, key.grace_until) if key.in_grace(now) else at

    def _model(self, key: Key, want: LeaseRequest) -> str:
        return key.credential.model or want.model(key.credential.provider)

    def _lease(self, want: LeaseRequest, key: Key, now: float) -> Lease:
        model = self._model(key, want)
        bucket = self._bucket(key, model)
        reservation = bucket.limiter.reserve(want.cost, now)
        lease = Lease(f"lease-{next(self._numbers)}", want, key.credential, now, reservation, model)
        key.leased_slots(lease.id, now)
        self.keys.used(key)
        self._breakers[key.credential.provider].sent(lease.id)
        bucket.cooldown.probe_started(now)
        if bucket.cooldown.spent(now):
            bucket.cooldown.probed(now)
        self._leases[lease.id] = lease
        return lease

    # What can be seen.

    def leases(self) -> list[Lease]:
        return list(self._leases.values())

    def lease(self, lease_id: str) -> Lease | None:
        return self._leases.get(lease_id)

    def waiting(self, now: float) -> list[LeaseRequest]:
        """Wishes that nothing but a key is missing for."""
        return [want for want in self._waiting if want.not_before <= now]

    def held(self) -> int:
        return len(self._leases)

    def back_for(self, want: LeaseRequest, now: float) -> tuple[float, str] | None:
        """When, by waiting alone, a key that this wish may use does not rest, and which; None without one."""
        ends = []
        for key in self.keys:
            if key.active and key.credential.provider in want.providers:
                rest = self._bucket(key, self._model(key, want)).cooldown
                ends.append((max(now, rest.back_at()) if rest.closed(now) else now, key.credential.name))
        return min(ends, default=None)

    def wake_at(self, now: float) -> float | None:
        """The next moment at which a waiting wish might be served without anything else happening."""
        if not self._waiting:
            return None
        soonest = min([self._next_at] + [self._soonest(want, now) for want in self._unconfirmed_peers])
        return None if soonest == NEVER else max(soonest, now)

    def _soonest(self, want: LeaseRequest, now: float) -> float:
        if want.not_before > now:
            return want.not_before
        probes = (self._probe_at(key, want, now) for key in self._probable(want))
        return min(self.opens_for(want, now)[0], min(probes, default=NEVER))

    def opens_for(self, want: LeaseRequest, now: float) -> tuple[float, str]:
        """When a key that is free now may serve this wish, and which."""
        opens = (
            (self._opens_at(key, want, now), key.credential.name)
            for key in self.keys
            if key.active and key.free and key.credential.provider in want.providers
        )
        return min(opens, default=(NEVER, ""))

    def open_breakers(self) -> list[tuple[str, float]]:
        """The providers that fail for everybody, and since when."""
        return [(name, one.began) for name, one in self._breakers.items() if one.began is not None]

    def buckets(self) -> dict[tuple[str, str], Bucket]:
        return self._buckets.all()

    def _bucket(self, key: Key, model: str) -> Bucket:
        """Remembered with the key: this is asked for every key at every decision."""
        if model not in key.buckets:
            key.buckets[model] = self._buckets.of(key.credential, model)
        return key.buckets[model]
