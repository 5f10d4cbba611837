"""State machine of the key pool on a simulated clock."""

import copy
import math
from dataclasses import dataclass

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentos.core.constants import DAY
from agentos.core.quota.credentials import Credential, KeyState
from agentos.core.quota.key_index import INDEXED_KEYS
from agentos.core.quota.lease import Lease, LeaseRequest
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.limits import Dimension, Rate
from agentos.core.ratelimit.refusals import clamp_hint
from agentos.core.text.secrets import Secret
from tests.core.builders import proven_pool, steady

HOUR = 3600.0  # seconds
PROVIDERS = ("gemini", "anthropic")
HOLDERS = ("LLD-1", "LLD-2", "LLD-3", "LLD-4")
SERVING = (KeyState.AVAILABLE, KeyState.RESERVED)

hints = st.none() | st.sampled_from((0.0, 1.0, 36.0, 5000.0, -1.0, float("nan")))
waits = st.sampled_from((0.0, 0.0, 0.0, 1.0, 30.0))
steps = st.sampled_from((0.5, 1.0, 30.0, 60.0, HOUR, DAY)) | st.floats(0.01, 100.0)


@st.composite
def credential_lists(draw: st.DrawFn) -> list[Credential]:
    """Credentials with distinct secrets; their names may belong to other secrets in the next list."""
    secrets = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True))
    return [
        Credential(
            name=f"key-{place}",
            # A secret always belongs to the same provider and bucket.
            provider=PROVIDERS[secret == 6],
            secret=Secret(f"secret-{secret}"),
            bucket="shared" if secret in (1, 2) else f"own-{secret}",
            concurrency=draw(st.integers(1, 2)),
            enabled=draw(st.integers(0, 9)) != 9,
            # High enough never to matter: the limiter has its own machine.
            rates=((Dimension.REQUESTS, Rate(1e9, 60.0)),),
        )
        for place, secret in enumerate(secrets, 1)
    ]


@dataclass(slots=True)
class BucketModel:
    """What the model records of a bucket's refusals, independently of the pool."""

    until: float = 0.0
    exhausted_until: float = 0.0
    probe_at: float = 0.0
    refused_at: float = -1.0


class PoolMachine(RuleBasedStateMachine):
    indexed_keys = INDEXED_KEYS

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.pool = Pool(())
        self.keys: dict[str, Credential] = {}
        self.quarantined: set[str] = set()
        self.bucket: dict[str, BucketModel] = {}
        self.waiting: list[LeaseRequest] = []
        self.leases: dict[str, Lease] = {}
        self.ended: list[str] = []
        self.calls = 0

    @initialize(credentials=credential_lists())
    def begin(self, credentials: list[Credential]) -> None:
        self.pool = proven_pool(credentials, self.indexed_keys)
        self.keys = {credential.name: credential for credential in credentials}

    # Rules.

    @rule(data=st.data(), hints=st.lists(hints, min_size=1, max_size=5))
    def work(self, data: st.DataObject, hints: list[float | None]) -> None:
        """The common case: calls are made, some are refused, and the next ones wait."""
        for hint in hints:
            self.request(data.draw(st.sampled_from(HOLDERS)), PROVIDERS, 0.0, 2)
            if self.leases:
                self.limit(data, hint)
            if self.leases:
                data.draw(st.sampled_from((self.succeed, self.release)))(data)
            if self.pool.wake_at(self.now) is not None:
                self.sleep_until_woken()

    @rule(
        holder=st.sampled_from(HOLDERS),
        providers=st.sampled_from((PROVIDERS[:1], PROVIDERS[:1], PROVIDERS, PROVIDERS[1:])),
        wait=waits,
        count=st.integers(1, 3),
    )
    def request(self, holder: str, providers: tuple[str, ...], wait: float, count: int) -> None:
        for _ in range(count):
            self.calls += 1
            waiting_request = LeaseRequest(holder, f"call-{self.calls}", providers, self.now, self.now + wait)
            self.waiting.append(waiting_request)
            self.pool.request(waiting_request)
        self.grant()

    @rule()
    def grant(self) -> None:
        before, granted = list(self.waiting), self.pool.grant(self.now)
        order = [before.index(lease.request) for lease in granted]
        assert order == sorted(order), "granted in order of arrival"
        for lease in granted:
            self._check_fifo(lease, before, [other.request for other in granted])
            self._check_grant(lease)
            self.waiting.remove(lease.request)
            self.leases[lease.id] = lease
        self._check_no_servable_request_waits()

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        lease = self._some_lease(data)
        assert self.pool.release(lease.id) is lease

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def release_late(self, data: st.DataObject) -> None:
        assert self.pool.release(data.draw(st.sampled_from(self.ended))) is None

    @rule(holder=st.sampled_from(HOLDERS))
    def drop_holder(self, holder: str) -> None:
        self.pool.drop_holder(holder)
        self.waiting = [
            waiting_request for waiting_request in self.waiting if waiting_request.holder != holder
        ]
        for lease in [lease for lease in self.leases.values() if lease.request.holder == holder]:
            self._ended(lease)
            assert self.pool.lease(lease.id) is None
        assert all(waiting_request.holder != holder for waiting_request in self.pool.waiting(math.inf))

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), hint=hints)
    def limit(self, data: st.DataObject, hint: float | None) -> None:
        lease = self._some_lease(data)
        self.pool.release(lease.id)
        if name := self._name_of(lease):
            bucket = self._bucket_model(self.keys[name])
            cooldowns = self.pool.bucket(name).cooldown.start(self.now, hint, "429")
            assert clamp_hint(hint) <= cooldowns + 1e-6, "a cooldown is never shorter than the hint"
            bucket.until = max(bucket.until, self.now + clamp_hint(hint))
            bucket.refused_at = self.now

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), day=st.sampled_from((20.0, 2 * HOUR, DAY)))
    def exhaust_day(self, data: st.DataObject, day: float) -> None:
        lease = self._some_lease(data)
        self.pool.release(lease.id)
        if name := self._name_of(lease):
            bucket = self._bucket_model(self.keys[name])
            self.pool.bucket(name).cooldown.start_exhausted(self.now, day, "429")
            bucket.probe_at = self.now + HOUR
            bucket.exhausted_until = max(bucket.exhausted_until, self.now + day)
            bucket.refused_at = self.now

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def succeed(self, data: st.DataObject) -> None:
        lease = self._some_lease(data)
        self.pool.release(lease.id)
        self.pool.breaker(lease.credential.provider).close()
        if name := self._name_of(lease):
            self.pool.bucket(name).cooldown.record_success(lease.granted_at)
            if lease.granted_at >= self._bucket_model(self.keys[name]).refused_at:
                self.bucket[self.keys[name].quota] = BucketModel()

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), times=st.sampled_from((1, 5)))
    def fail(self, data: st.DataObject, times: int) -> None:
        lease = self._some_lease(data)
        self.pool.release(lease.id)
        for _ in range(times):
            self.pool.breaker(lease.credential.provider).record_failure(self.now, self.now, steady)

    @rule(data=st.data(), dice=st.integers(0, 3))
    def quarantine(self, data: st.DataObject, dice: int) -> None:
        if dice == 3:
            name = data.draw(st.sampled_from(sorted(self.keys)))
            self.pool.quarantine(name, "401 unauthorised")
            self.quarantined.add(name)

    @rule(credentials=credential_lists())
    def replace(self, credentials: list[Credential]) -> None:
        old, new = self.keys, {credential.name: credential for credential in credentials}
        self.pool.replace(credentials)
        known = {credential.secret for credential in old.values()}
        for name, credential in new.items():
            if credential.secret not in known:
                self.pool.mark_proven(name)
        survivors = {credential.quota for credential in new.values() if credential.secret in known}
        self.bucket = {quota: bucket for quota, bucket in self.bucket.items() if quota in survivors}
        self.keys, self.quarantined = new, set()

    @rule(seconds=steps)
    def advance(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.pool.wake_at(self.now) is not None)
    @rule()
    def sleep_until_woken(self) -> None:
        self.now = self.pool.wake_at(self.now) or self.now
        self.grant()

    # Invariants.

    @invariant()
    def every_key_is_in_the_state_that_the_model_expects(self) -> None:
        for name in self.pool.keys.names():
            assert self.pool.keys.state(name, self.now) is self._expected_state(name)

    @invariant()
    def counts_match_the_model(self) -> None:
        states = {name: self.pool.keys.state(name, self.now) for name in self.pool.keys.names()}
        slots = sum(self.keys[name].concurrency for name, state in states.items() if state in SERVING)
        assert self.pool.keys.usable_slots(self.now) == slots
        assert self.pool.held() == len(self.leases)
        shown = f"<Pool {len(self.keys)} keys, {len(self.leases)} leased, {len(self.waiting)} waiting>"
        assert repr(self.pool) == shown
        assert self.pool.waiting(self.now) == [
            waiting_request for waiting_request in self.waiting if waiting_request.not_before <= self.now
        ]

    @invariant()
    def a_late_release_frees_no_other_lease(self) -> None:
        assert all(self.pool.lease(lease.id) is lease for lease in self.leases.values())
        assert all(self.pool.lease(lease_id) is None for lease_id in self.ended)

    @invariant()
    def no_request_could_be_granted_before_wake_at(self) -> None:
        pool = copy.deepcopy(self.pool)
        pool.grant(self.now)
        wake_at = pool.wake_at(self.now)
        assert wake_at is None or wake_at > self.now
        for at in self._moments():
            if self.now < at and (wake_at is None or at < wake_at):
                assert not copy.deepcopy(pool).grant(at), "woken too late"

    @invariant()
    def an_open_breaker_without_a_probe_can_be_probed(self) -> None:
        held = {lease.credential.provider for lease in self.leases.values()}
        for provider in set(PROVIDERS) - held:
            breaker = self.pool.breaker(provider)
            assert breaker.allows(max(self.now, breaker.open_until))

    # The model.

    def _some_lease(self, data: st.DataObject) -> Lease:
        lease = self.leases[data.draw(st.sampled_from(sorted(self.leases)))]
        self._ended(lease)
        return lease

    def _ended(self, lease: Lease) -> None:
        del self.leases[lease.id]
        self.ended.append(lease.id)

    def _name_of(self, lease: Lease) -> str | None:
        return self.pool.keys.current_name(lease.credential)

    def _bucket_model(self, credential: Credential) -> BucketModel:
        return self.bucket.setdefault(credential.quota, BucketModel())

    def _calls_on(self, credential: Credential) -> int:
        return sum(lease.credential.secret == credential.secret for lease in self.leases.values())

    def _check_fifo(self, lease: Lease, before: list[LeaseRequest], granted: list[LeaseRequest]) -> None:
        for earlier in before[: before.index(lease.request)]:
            passed_over = earlier not in granted and earlier.not_before <= self.now
            assert not (passed_over and lease.credential.provider == earlier.providers[0])

    def _check_grant(self, lease: Lease) -> None:
        credential, bucket = lease.credential, self._bucket_model(lease.credential)
        assert credential == self.keys[credential.name]
        assert credential.enabled and credential.name not in self.quarantined
        assert credential.provider in lease.request.providers
        assert lease.request.not_before <= self.now
        assert self._calls_on(credential) < credential.concurrency
        assert self.now >= bucket.until, "granted during a cooldown"
        if self.now < bucket.exhausted_until:
            assert self.now >= bucket.probe_at, "an exhausted day is probed hourly"
            bucket.probe_at = self.now + HOUR

    def _check_no_servable_request_waits(self) -> None:
        open_breakers = {found.provider for found in self.pool.open_breakers()}
        for waiting_request in self.pool.waiting(self.now):
            for name, credential in self.keys.items():
                # A fallback is for when the preferred provider has no usable key, not when it is busy.
                fits = (
                    credential.provider == waiting_request.providers[0]
                    and credential.provider not in open_breakers
                )
                on_probation = self.pool.bucket(name).cooldown.blocks(self.now)
                idle = self.pool.keys.state(name, self.now) is KeyState.AVAILABLE
                assert not (fits and idle and not on_probation)

    def _expected_state(self, name: str) -> KeyState:
        credential, bucket = self.keys[name], self._bucket_model(self.keys[name])
        if not credential.enabled:
            return KeyState.DISABLED
        if name in self.quarantined:
            return KeyState.QUARANTINED
        if self.now < bucket.exhausted_until:
            return KeyState.EXHAUSTED
        if self.now < self.pool.bucket(name).cooldown.until:
            return KeyState.RATE_LIMITED
        free = self._calls_on(credential) < credential.concurrency
        return KeyState.AVAILABLE if free else KeyState.RESERVED

    def _moments(self) -> list[float]:
        shuts = [at for bucket in self.bucket.values() for at in (bucket.until, bucket.exhausted_until)]
        cooldowns = [self.pool.bucket(name).cooldown for name in self.keys]
        opening = [
            at
            for cooldown in cooldowns
            for at in (cooldown.until, cooldown.probe_at, cooldown.exhausted_until)
        ]
        breakers = [self.pool.breaker(provider).open_until for provider in PROVIDERS]
        return [
            *shuts,
            *opening,
            *breakers,
            *(waiting_request.not_before for waiting_request in self.waiting),
            self.now + 7 * DAY,
        ]


# No shrinking: it takes minutes, and forty steps can be read.
PoolMachine.TestCase.settings = settings(
    max_examples=10, stateful_step_count=40, deadline=None, phases=[Phase.reuse, Phase.generate]
)
TestPoolMachine = PoolMachine.TestCase


class IndexedPoolMachine(PoolMachine):
    """As above, with the index that large pools use."""

    indexed_keys = 0


IndexedPoolMachine.TestCase.settings = PoolMachine.TestCase.settings
TestIndexedPoolMachine = IndexedPoolMachine.TestCase


@pytest.mark.slow
class TestPoolMachineAtLength(PoolMachine.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(TestPoolMachine.settings, max_examples=40)
