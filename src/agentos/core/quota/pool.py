"""The key pool: decides which waiting request gets a lease on which key, and when."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from agentos.core.protocol.peer_notes import Note
from agentos.core.quota.buckets import Bucket, Buckets
from agentos.core.quota.credentials import Credential
from agentos.core.quota.kept_keys import KeptKeys
from agentos.core.quota.key_index import INDEXED_KEYS, KeyIndex
from agentos.core.quota.keys import Key, Keys, KeyTime, RequestedModels
from agentos.core.quota.lease import Lease, LeaseRequest
from agentos.core.quota.peer_state import PeerState
from agentos.core.quota.request_queue import Decision, RequestQueue
from agentos.core.ratelimit.circuit_breaker import CircuitBreaker, OpenBreaker
from agentos.core.ratelimit.limits import CallCost
from agentos.core.ratelimit.shared_quota import SharedQuotaDetector

MAX_OVERTAKING = 1.0  # seconds in which smaller requests may pass one that waits for a limit
LONG_QUEUE = 32  # requests of one kind; in a longer queue, check first whether any size could be served
PROBED_KEYS = 4  # considered for a probe at a time, if the keys are many
NEVER = float("inf")
CanAfford = Callable[[str, CallCost], bool]


class Pool:
    """All keys of a run, and the requests that wait for them.

    Pure: it reads no clock and sends nothing. Its owner passes the time, calls `grant` after anything has
    changed, and again at `wake_at`. A granted lease never exceeds a key's slots, a known limit of its
    bucket, a cooldown, or an open circuit breaker.

        pool.request(LeaseRequest("item-1", "draft", ("gemini",), requested_at=now))
        for lease in pool.grant(now):
            ...
        pool.release(lease.id)

    It only accounts for leases. The `LeaseManager` decides what answers and refusals mean for a bucket.
    """

    def __init__(
        self,
        credentials: Iterable[Credential],
        indexed_keys: int = INDEXED_KEYS,
        kept_keys: KeptKeys | None = None,
    ) -> None:
        """The keys of a provider that has more than `indexed_keys` are found through an index."""
        self.keys = Keys()
        self._indexed_keys = indexed_keys
        self._buckets = Buckets()
        self._requested_models = RequestedModels(self.keys, self._buckets)
        self._breakers: defaultdict[tuple[str, str], CircuitBreaker] = defaultdict(CircuitBreaker)
        self._indexes: dict[str, KeyIndex] = {}  # by provider, of those that have many keys
        self.shared_quotas = SharedQuotaDetector()
        self._peers = PeerState(self.keys, self._buckets, self._breakers, self.shared_quotas, self._touch)
        self._leases: dict[str, Lease] = {}
        self._by_holder: dict[str, list[Lease]] = {}
        self._open_keys: dict[tuple[tuple[str, ...], tuple[str, ...]], Key] = {}
        """By providers and models, a key that was not in cooldown when it was last checked."""
        self._kept_keys = KeptKeys() if kept_keys is None else kept_keys
        self._waiting = RequestQueue()
        self._lease_numbers = itertools.count(1)
        self._next_grant_at: float = NEVER
        self._new_requests: list[LeaseRequest] = []  # since the last grant; not yet in _next_grant_at
        self._replace_keys(credentials)

    def __repr__(self) -> str:
        return f"<Pool {len(self.keys)} keys, {len(self._leases)} leased, {self._waiting.count} waiting>"

    # Requests and leases.

    def request(self, request: LeaseRequest) -> None:
        if self._waiting.add(request):
            self._requested_models.add(request)
        self._new_requests.append(request)

    def is_backing_off(self, holder: str, now: float) -> bool:
        """Whether a request of this holder is held back because its last attempt failed."""
        return self._waiting.is_delayed(holder, now)

    def skip_backoff(self, provider: str, now: float) -> None:
        """End the backoff of all requests that may use this provider, because it answers again."""
        self._waiting.end_delays_of(provider, now)

    def release(self, lease_id: str) -> Lease | None:
        """End a lease and return it; None if it was already over."""
        lease = self._leases.pop(lease_id, None)
        if lease is None:
            return None
        held = self._by_holder[lease.request.holder]
        held.remove(lease)
        if not held:
            del self._by_holder[lease.request.holder]
        if name := self.keys.current_name(lease.credential):
            key = self.keys[name]
            key.leases.discard(lease_id)
            if self._indexes:
                self._touch([key])
        self.breaker(lease.credential.provider, lease.model).record_end(lease_id)
        return lease

    def drop_kept_key(self, lease: Lease) -> None:
        """Let the next request with the same affinity use any key, because this lease's call failed."""
        self._kept_keys.drop(lease)

    def drop_holder(self, holder: str) -> list[Lease]:
        """Remove the requests and leases of a holder that is gone; return the leases."""
        self._waiting.drop(holder)
        held = list(self._by_holder.get(holder, ()))
        for lease in held:
            self.release(lease.id)
            self.bucket_of(lease).limiter.drop(lease.reservation)
        return held

    # Keys, buckets and circuit breakers.

    def bucket(self, name: str, model: str = "") -> Bucket:
        """Return a bucket that the caller may change."""
        key = self.keys[name]
        if self._indexes:
            self._touch_quota(key.credential)
        return self._bucket(key, model)

    def bucket_of(self, lease: Lease) -> Bucket:
        """Return the bucket of a lease, which the caller may change."""
        self._touch_quota(lease.credential)
        return self._buckets.of(lease.credential, lease.model)

    def buckets(self) -> dict[tuple[str, str], Bucket]:
        return self._buckets.all()

    def breaker(self, provider: str, model: str = "") -> CircuitBreaker:
        return self._breakers[provider, model]

    def open_breakers(self) -> list[OpenBreaker]:
        """The models whose circuit breaker is open, and since when."""
        return [
            OpenBreaker(provider, model, breaker.opened_at)
            for (provider, model), breaker in self._breakers.items()
            if breaker.opened_at is not None
        ]

    def mark_proven(self, name: str) -> None:
        """Note that a key is valid: from now on all its slots may be used at once."""
        self.keys[name].proven = True
        self._touch([self.keys[name]])

    def quarantine(self, name: str, reason: str) -> None:
        key = self.keys[name]
        key.set_quarantine(reason)
        self._touch([key, *self.keys.retry_quarantined(key.credential.provider)])

    def replace(self, credentials: Iterable[Credential]) -> None:
        """Switch to an edited list of credentials; keys are matched by fingerprint, not by name."""
        new = {credential.fingerprint: credential for credential in credentials}
        old = self.keys.by_fingerprint()
        old_quotas = {found: key.credential.quota for found, key in old.items()}
        self._buckets.rekey((credential, old_quotas.get(found)) for found, credential in new.items())
        self._replace_keys(new.values())
        for key in self.keys:
            before = old.get(key.credential.fingerprint)
            key.proven = before is not None and before.proven
        self._requested_models.rebuild()

    def _replace_keys(self, credentials: Iterable[Credential]) -> None:
        self.keys.replace([self._key(credential) for credential in credentials])
        self._open_keys.clear()
        by_provider: defaultdict[str, list[Key]] = defaultdict(list)
        for key in self.keys:
            by_provider[key.credential.provider].append(key)
        self._indexes = {
            provider: KeyIndex(keys, self._opens_at, self._next_allowed_at)
            for provider, keys in by_provider.items()
            if len(keys) > self._indexed_keys
        }

    def _touch(self, keys: Iterable[Key]) -> None:
        """Note that these keys may open at a different time than expected."""
        if self._indexes:
            for key in keys:
                if index := self._indexes.get(key.credential.provider):
                    index.touch(key)

    def _touch_quota(self, credential: Credential) -> None:
        self._touch(self.keys.find_by_quota(credential.quota))

    def _key(self, credential: Credential) -> Key:
        """Create a key with the calls in flight on it, which may predate its credential."""
        found = credential.fingerprint
        own = {lease.id for lease in self._leases.values() if lease.credential.fingerprint == found}
        peers = self._peers.calls_on(found)
        return Key(credential, self._buckets.cooldowns(credential.quota), leases=own | peers)

    # Other runs on this host.

    def apply_note(self, note: Note) -> None:
        """Apply what another run did with the shared keys, or learned about them."""
        self._peers.apply_note(note)

    def peer_runs(self) -> set[str]:
        """The other runs that hold one of our keys."""
        return self._peers.runs()

    # Granting.

    def grant(self, now: float, can_afford: CanAfford | None = None) -> list[Lease]:
        """Grant, in order of priority, every request that a key can serve now and the budget allows.

        A request that has to wait holds back larger ones of its kind at once, and smaller ones after a while.
        """
        self._next_grant_at = NEVER
        self._new_requests.clear()
        if not self._waiting.count:
            return []
        granted: list[Lease] = []

        def decide(request: LeaseRequest) -> Decision:
            key = self._pick_key(request, now) or self._pick_probe_key(request, now)
            if key is None:
                return self._block(request, now)
            if can_afford and not can_afford(request.model_for(key.credential), request.cost):
                return Decision.STOP
            granted.append(self._lease(request, key, now))
            return Decision.GRANTED

        self._waiting.serve(now, decide)
        if self._waiting.count:
            self._next_grant_at = min(self._next_grant_at, self._waiting.next_delayed_at)
        return granted

    def _block(self, request: LeaseRequest, now: float) -> Decision:
        """Let smaller requests pass for a while, but not forever: a large one would starve."""
        if now - request.requested_at >= MAX_OVERTAKING:
            return Decision.BLOCKED_KIND
        if self._waiting.queue_length(request.kind) > LONG_QUEUE:
            smallest = request._replace(cost=CallCost(), affinity="")
            if self._pick_key(smallest, now) is None:
                return Decision.BLOCKED_KIND
        return Decision.BLOCKED

    def _pick_key(self, request: LeaseRequest, now: float) -> Key | None:
        """Return a key that can serve the request now: the one that last served its affinity, else the least recently used."""
        if request.affinity and (kept := self._kept_key(request, now)):
            return kept
        for provider in request.providers:
            if key := self._pick_key_of(provider, request, now):
                return key
            if provider != request.providers[-1] and self._is_worth_waiting_for(provider, request, now):
                return None
        return None

    def _pick_key_of(self, provider: str, request: LeaseRequest, now: float) -> Key | None:
        if provider in self._indexes and not request.excluded:
            pick = self._indexes[provider].pick(request, now, self._buckets.revision(provider))
            self._next_grant_at = min(self._next_grant_at, pick.next_at)
            return pick.key
        for key in self.keys:
            if key.credential.provider == provider:
                at = self._next_allowed_at(key, request, now)
                if at <= now:
                    return key
                self._next_grant_at = min(self._next_grant_at, at)
        return None

    def _kept_key(self, request: LeaseRequest, now: float) -> Key | None:
        """Return the key of the last request with the same affinity, if it can serve this one at once."""
        for key in (self.keys[name] for name in self._kept_keys.names(request) if name in self.keys):
            is_ready = key.active and key.free and key.credential.provider in request.providers
            if is_ready and self._next_allowed_at(key, request, now) <= now:
                return key
        return None

    def _pick_probe_key(self, request: LeaseRequest, now: float) -> Key | None:
        """Return a key whose limit seems used up, for the one call that probes how the provider counts."""
        for key, at in self._probes(request, now):
            if at <= now:
                self._bucket(key, request.model_for(key.credential)).limiter.start_probe(now)
                return key
            self._next_grant_at = min(self._next_grant_at, at)
        return None

    def _probes(self, request: LeaseRequest, now: float) -> Iterator[tuple[Key, float]]:
        """Yield keys that may send such a probe, each with the earliest time for it. If the keys are many, only some.

        One probe is enough for all keys of a provider.
        """
        for key in itertools.islice(self.keys, PROBED_KEYS if self._indexes else None):
            if not (key.active and key.proven and key.free):
                continue
            if key.credential.provider not in request.providers or key.credential.name in request.excluded:
                continue
            model = request.model_for(key.credential)
            if self.breaker(key.credential.provider, model).opened_at is not None:
                continue
            bucket = self._bucket(key, model)
            if not bucket.limiter.may_probe:
                continue
            if not bucket.cooldown.blocks(now) and not bucket.cooldown.exhausted(now):
                at = bucket.limiter.probe_at(request.cost, now)
                if at is not None:
                    yield key, at

    def _is_worth_waiting_for(self, provider: str, request: LeaseRequest, now: float) -> bool:
        """Return whether a key of the provider is merely in use or paced."""
        for key in self.keys:
            if key.credential.provider == provider and key.active:
                model = request.model_for(key.credential)
                cooldown = self._bucket(key, model).cooldown
                is_free = not cooldown.limited(now) and not cooldown.exhausted(now)
                if is_free and self.breaker(provider, model).opened_at is None:
                    return True
        return False

    def _next_allowed_at(self, key: Key, request: LeaseRequest, now: float) -> float:
        """Return when the key may serve the request; infinite if something has to happen first."""
        at = self._opens_at(key, request, now)
        if at == NEVER:
            return NEVER
        breaker = self._breakers[key.credential.provider, request.model_for(key.credential)]
        if breaker.opened_at is not None and not breaker.allows(now):
            return breaker.open_until if breaker.open_until > now else NEVER
        return at

    def _opens_at(self, key: Key, request: LeaseRequest, now: float) -> float:
        """Return when the key may serve the request, whatever the circuit breaker; infinite if it is in use or inactive."""
        credential = key.credential
        # Inlines `key.active` and `key.free`: on this hot path, function calls matter.
        if not credential.enabled or key.quarantine or len(key.leases) >= credential.concurrency:
            return NEVER
        if request.excluded and credential.name in request.excluded:
            return NEVER
        bucket = self._bucket(key, request.model_for(credential))
        cooldown = bucket.cooldown
        if cooldown.blocks(now):
            return cooldown.next_allowed_at()
        if now < cooldown.exhausted_until and key.leases:
            return cooldown.exhausted_until
        at = bucket.limiter.next_allowed_at(request.cost, now)
        return max(at, key.grace_until) if key.leases and key.in_grace(now) else at

    def _bucket(self, key: Key, model: str) -> Bucket:
        """Look up a bucket through the key's cache: hot path, for every key at every decision."""
        bucket = key.buckets.get(model)
        if bucket is None:
            bucket = key.buckets[model] = self._buckets.of(key.credential, model)
        return bucket

    def _lease(self, request: LeaseRequest, key: Key, now: float) -> Lease:
        model = request.model_for(key.credential)
        bucket = self._bucket(key, model)
        reservation = bucket.limiter.reserve(request.cost, now)
        lease = Lease(f"lease-{next(self._lease_numbers)}", request, key.credential, now, reservation, model)
        key.add_lease(lease.id, now)
        self.keys.mark_used(key)
        if self._indexes:
            self._touch_quota(key.credential)
        self._breakers[key.credential.provider, model].record_send(lease.id)
        bucket.cooldown.record_send(now)
        self._leases[lease.id] = lease
        self._by_holder.setdefault(request.holder, []).append(lease)
        self._kept_keys.keep(lease)
        return lease

    # Queries.

    def leases(self) -> list[Lease]:
        return list(self._leases.values())

    def lease(self, lease_id: str) -> Lease | None:
        return self._leases.get(lease_id)

    def held(self) -> int:
        return len(self._leases)

    def waiting(self, now: float) -> list[LeaseRequest]:
        """The requests that wait only for a key."""
        return self._waiting.due(now)

    def first_waiting(self, now: float) -> list[LeaseRequest]:
        """The first request of each kind."""
        return self._waiting.heads(now)

    def any_waiting(self, now: float) -> bool:
        return self._waiting.any_due(now)

    def recovery_for(self, request: LeaseRequest, now: float) -> KeyTime | None:
        """When the cooldown of the first key for this request ends; None if waiting would not help."""
        times = []
        kind = (request.providers, request.models)
        # Usually the key that was found last time is still good, so that not every key needs to be checked.
        last = self._open_keys.get(kind)
        is_candidate = last is not None and last.credential.name not in request.excluded
        for key in itertools.chain([last] if last and is_candidate else (), self._candidates(request)):
            if key.active:
                cooldown = self._bucket(key, request.model_for(key.credential)).cooldown
                if not cooldown.blocks(now):
                    self._open_keys[kind] = key
                    return KeyTime(now, key.credential.name)
                if not cooldown.no_access:
                    times.append(KeyTime(max(now, cooldown.ends_at()), key.credential.name))
        return min(times, default=None)

    def denials(self, request: LeaseRequest) -> dict[str, str]:
        """Why keys cannot serve this request however long it waits, by key name: rejected, or without access to the model."""
        found = {}
        for key in self._candidates(request):
            cooldown = self._bucket(key, request.model_for(key.credential)).cooldown
            if reason := key.quarantine or (cooldown.reason if cooldown.no_access else ""):
                found[key.credential.name] = reason
        return found

    def _candidates(self, request: LeaseRequest) -> Iterator[Key]:
        """The keys of the request's providers, without those that it excludes."""
        return (
            key
            for key in self.keys
            if key.credential.provider in request.providers and key.credential.name not in request.excluded
        )

    def next_allowed_for(self, request: LeaseRequest, now: float) -> KeyTime:
        """When the first key with a free slot may serve this request."""
        times = (
            KeyTime(self._next_allowed_at(key, request, now), key.credential.name)
            for key in self.keys
            if key.active and key.free and key.credential.provider in request.providers
        )
        return min(times, default=KeyTime(NEVER, ""))

    def wake_at(self, now: float) -> float | None:
        """When to call `grant` again if nothing else happens; None if time alone will not help."""
        if not self._waiting.count:
            return None
        at = min([self._next_grant_at] + [self._earliest_grant(new, now) for new in self._new_requests])
        return None if at == NEVER else max(at, now)

    def _earliest_grant(self, request: LeaseRequest, now: float) -> float:
        if request.not_before > now:
            return request.not_before
        probe_at = min((at for _, at in self._probes(request, now)), default=NEVER)
        return min(self.next_allowed_for(request, now).at, probe_at)
