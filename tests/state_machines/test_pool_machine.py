"""Random lives of a pool on a clock that the machine moves."""

import copy
import math
from dataclasses import dataclass

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentos.core.quota.credentials import Credential, KeyState
from agentos.core.quota.lease import Lease, LeaseRequest
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.limits import Dimension, Rate
from agentos.core.ratelimit.refusals import clamp_hint
from agentos.core.text.secrets import Secret
from tests.core.builders import proven, steady

HOUR, DAY = 3600.0, 86400.0
PROVIDERS = ("gemini", "anthropic")
HOLDERS = ("LLD-1", "LLD-2", "LLD-3", "LLD-4")
SERVING = (KeyState.AVAILABLE, KeyState.RESERVED)

hints = st.none() | st.sampled_from((0.0, 1.0, 36.0, 5000.0, -1.0, float("nan")))
waits = st.sampled_from((0.0, 0.0, 0.0, 1.0, 30.0))
steps = st.sampled_from((0.5, 1.0, 30.0, 60.0, HOUR, DAY)) | st.floats(0.01, 100.0)


@st.composite
def credential_lists(draw: st.DrawFn) -> list[Credential]:
    """Distinct secrets under names that may belong to others in the next list."""
    secrets = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True))
    return [
        Credential(
            name=f"key-{place}",
            # One secret always belongs to one provider and to one bucket, as it does in the world.
            provider=PROVIDERS[secret == 6],
            secret=Secret(f"secret-{secret}"),
            bucket="shared" if secret in (1, 2) else f"own-{secret}",
            concurrency=draw(st.integers(1, 2)),
            enabled=draw(st.integers(0, 9)) != 9,
            # Wide enough never to matter: pacing has tests of its own.
            rates=((Dimension.REQUESTS, Rate(1e9, 60.0)),),
        )
        for place, secret in enumerate(secrets, 1)
    ]


@dataclass(slots=True)
class Shut:
    """What the model remembers of a bucket's refusals, kept apart from the pool's own memory."""

    until: float = 0.0
    exhausted_until: float = 0.0
    probe_at: float = 0.0
    refused_at: float = -1.0


class PoolMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.pool = Pool(())
        self.keys: dict[str, Credential] = {}
        self.quarantined: set[str] = set()
        self.shut: dict[str, Shut] = {}
        self.waiting: list[LeaseRequest] = []
        self.leases: dict[str, Lease] = {}
        self.ended: list[str] = []
        self.calls = 0

    @initialize(credentials=credential_lists())
    def begin(self, credentials: list[Credential]) -> None:
        self.pool = proven(credentials)
        self.keys = {credential.name: credential for credential in credentials}

    # What happens to a pool.

    @rule(data=st.data(), hints=st.lists(hints, min_size=1, max_size=5))
    def be_busy(self, data: st.DataObject, hints: list[float | None]) -> None:
        """What mostly happens: calls are made, some are refused, and the next ones wait."""
        for hint in hints:
            self.ask(data.draw(st.sampled_from(HOLDERS)), PROVIDERS, 0.0, 2)
            if self.leases:
                self.limit(data, hint)
            if self.leases:
                data.draw(st.sampled_from((self.serve, self.give_back)))(data)
            if self.pool.wake_at(self.now) is not None:
                self.sleep_until_woken()

    @rule(
        holder=st.sampled_from(HOLDERS),
        providers=st.sampled_from((PROVIDERS[:1], PROVIDERS[:1], PROVIDERS, PROVIDERS[1:])),
        wait=waits,
        count=st.integers(1, 3),
    )
    def ask(self, holder: str, providers: tuple[str, ...], wait: float, count: int) -> None:
        for _ in range(count):
            self.calls += 1
            want = LeaseRequest(holder, f"call-{self.calls}", providers, self.now, self.now + wait)
            self.waiting.append(want)
            self.pool.request(want)
        self.grant()

    @rule()
    def grant(self) -> None:
        before, granted = list(self.waiting), self.pool.grant(self.now)
        order = [before.index(lease.request) for lease in granted]
        assert order == sorted(order), "served in the order of asking"
        for lease in granted:
            self._check_fifo(lease, before, [other.request for other in granted])
            self._check_grant(lease)
            self.waiting.remove(lease.request)
            self.leases[lease.id] = lease
        self._check_nothing_is_left_over()

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        lease = self._some_lease(data)
        assert self.pool.release(lease.id) is lease

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def give_back_late(self, data: st.DataObject) -> None:
        assert self.pool.release(data.draw(st.sampled_from(self.ended))) is None

    @rule(holder=st.sampled_from(HOLDERS))
    def forget(self, holder: str) -> None:
        self.pool.drop_holder(holder)
        self.waiting = [want for want in self.waiting if want.holder != holder]
        for lease in [lease for lease in self.leases.values() if lease.request.holder == holder]:
            self._ended(lease)
            assert self.pool.lease(lease.id) is None
        assert all(want.holder != holder for want in self.pool.waiting(math.inf))

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), hint=hints)
    def limit(self, data: st.DataObject, hint: float | None) -> None:
        lease = self._some_lease(data)
        self.pool.release(lease.id)
        if name := self._name_of(lease):
            shut = self._shut(self.keys[name])
            rests = self.pool.bucket(name).cooldown.start(self.now, hint, "429")
            assert clamp_hint(hint) <= rests + 1e-6, "a rest is never shorter than the hint"
            shut.until = max(shut.until, self.now + clamp_hint(hint))
            shut.refused_at = self.now

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), day=st.sampled_from((20.0, 2 * HOUR, DAY)))
    def spend(self, data: st.DataObject, day: float) -> None:
        lease = self._some_lease(data)
        self.pool.release(lease.id)
        if name := self._name_of(lease):
            shut = self._shut(self.keys[name])
            self.pool.bucket(name).cooldown.start_exhausted(self.now, day, "429")
            shut.probe_at = self.now + HOUR
            shut.exhausted_until = max(shut.exhausted_until, self.now + day)
            shut.refused_at = self.now

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def serve(self, data: st.DataObject) -> None:
        lease = self._some_lease(data)
        self.pool.release(lease.id)
        self.pool.breaker(lease.credential.provider).close()
        if name := self._name_of(lease):
            self.pool.bucket(name).cooldown.record_success(lease.granted_at)
            if lease.granted_at >= self._shut(self.keys[name]).refused_at:
                self.shut[self.keys[name].quota] = Shut()

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), times=st.sampled_from((1, 5)))
    def fail(self, data: st.DataObject, times: int) -> None:
        lease = self._some_lease(data)
        self.pool.release(lease.id)
        for _ in range(times):
            self.pool.breaker(lease.credential.provider).record_failure(self.now, self.now, steady)

    @rule(data=st.data(), sure=st.integers(0, 3))
    def quarantine(self, data: st.DataObject, sure: int) -> None:
        if sure == 3:
            name = data.draw(st.sampled_from(sorted(self.keys)))
            self.pool.quarantine(name, "401 unauthorised")
            self.quarantined.add(name)

    @rule(credentials=credential_lists())
    def replace(self, credentials: list[Credential]) -> None:
        old, new = self.keys, {credential.name: credential for credential in credentials}
        self.pool.replace(credentials)
        known = {one.secret for one in old.values()}
        for name, one in new.items():
            if one.secret not in known:
                self.pool.mark_proven(name)
        survivors = {one.quota for one in new.values() if one.secret in known}
        self.shut = {quota: shut for quota, shut in self.shut.items() if quota in survivors}
        self.keys, self.quarantined = new, set()

    @rule(seconds=steps)
    def advance(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.pool.wake_at(self.now) is not None)
    @rule()
    def sleep_until_woken(self) -> None:
        self.now = self.pool.wake_at(self.now) or self.now
        self.grant()

    # What is true at all times.

    @invariant()
    def every_key_is_in_the_state_that_its_story_says(self) -> None:
        for name in self.pool.keys.names():
            assert self.pool.keys.state(name, self.now) is self._expected_state(name)

    @invariant()
    def the_sums_are_right(self) -> None:
        states = {name: self.pool.keys.state(name, self.now) for name in self.pool.keys.names()}
        slots = sum(self.keys[name].concurrency for name, state in states.items() if state in SERVING)
        assert self.pool.keys.usable_slots(self.now) == slots
        assert self.pool.held() == len(self.leases)
        shown = f"<Pool {len(self.keys)} keys, {len(self.leases)} leased, {len(self.waiting)} waiting>"
        assert repr(self.pool) == shown
        assert self.pool.waiting(self.now) == [want for want in self.waiting if want.not_before <= self.now]

    @invariant()
    def a_late_giving_back_frees_nobody_elses_lease(self) -> None:
        assert all(self.pool.lease(lease.id) is lease for lease in self.leases.values())
        assert all(self.pool.lease(lease_id) is None for lease_id in self.ended)

    @invariant()
    def nobody_could_be_served_before_the_pool_wakes(self) -> None:
        trial = copy.deepcopy(self.pool)
        trial.grant(self.now)
        wakes = trial.wake_at(self.now)
        assert wakes is None or wakes > self.now
        for moment in self._moments():
            if self.now < moment and (wakes is None or moment < wakes):
                assert not copy.deepcopy(trial).grant(moment), "woken too late"

    @invariant()
    def a_storm_that_nobody_is_looking_at_can_be_looked_at(self) -> None:
        held = {lease.credential.provider for lease in self.leases.values()}
        for provider in set(PROVIDERS) - held:
            breaker = self.pool.breaker(provider)
            assert breaker.allows(max(self.now, breaker.open_until))

    # How the model sees it.

    def _some_lease(self, data: st.DataObject) -> Lease:
        lease = self.leases[data.draw(st.sampled_from(sorted(self.leases)))]
        self._ended(lease)
        return lease

    def _ended(self, lease: Lease) -> None:
        del self.leases[lease.id]
        self.ended.append(lease.id)

    def _name_of(self, lease: Lease) -> str | None:
        return self.pool.keys.current_name(lease.credential)

    def _shut(self, credential: Credential) -> Shut:
        return self.shut.setdefault(credential.quota, Shut())

    def _calls_on(self, credential: Credential) -> int:
        return sum(lease.credential.secret == credential.secret for lease in self.leases.values())

    def _check_fifo(self, lease: Lease, before: list[LeaseRequest], granted: list[LeaseRequest]) -> None:
        for earlier in before[: before.index(lease.request)]:
            passed_over = earlier not in granted and earlier.not_before <= self.now
            assert not (passed_over and lease.credential.provider == earlier.providers[0])

    def _check_grant(self, lease: Lease) -> None:
        credential, shut = lease.credential, self._shut(lease.credential)
        assert credential == self.keys[credential.name]
        assert credential.enabled and credential.name not in self.quarantined
        assert credential.provider in lease.request.providers
        assert lease.request.not_before <= self.now
        assert self._calls_on(credential) < credential.concurrency
        assert self.now >= shut.until, "granted before its time"
        if self.now < shut.exhausted_until:
            assert self.now >= shut.probe_at, "a spent day is looked at hourly"
            shut.probe_at = self.now + HOUR

    def _check_nothing_is_left_over(self) -> None:
        stormy = {provider for provider, _ in self.pool.open_breakers()}
        for want in self.pool.waiting(self.now):
            for name, credential in self.keys.items():
                # A fallback is for when the preferred provider has no usable key, not when it is busy.
                fits = credential.provider == want.providers[0] and credential.provider not in stormy
                proving = self.pool.bucket(name).cooldown.blocks(self.now)
                idle = self.pool.keys.state(name, self.now) is KeyState.AVAILABLE
                assert not (fits and idle and not proving)

    def _expected_state(self, name: str) -> KeyState:
        credential, shut = self.keys[name], self._shut(self.keys[name])
        if not credential.enabled:
            return KeyState.DISABLED
        if name in self.quarantined:
            return KeyState.QUARANTINED
        if self.now < shut.exhausted_until:
            return KeyState.EXHAUSTED
        if self.now < self.pool.bucket(name).cooldown.until:
            return KeyState.RATE_LIMITED
        free = self._calls_on(credential) < credential.concurrency
        return KeyState.AVAILABLE if free else KeyState.RESERVED

    def _moments(self) -> list[float]:
        shuts = [moment for shut in self.shut.values() for moment in (shut.until, shut.exhausted_until)]
        rests = [self.pool.bucket(name).cooldown for name in self.keys]
        opening = [moment for rest in rests for moment in (rest.until, rest.probe_at, rest.exhausted_until)]
        storms = [self.pool.breaker(provider).open_until for provider in PROVIDERS]
        return [*shuts, *opening, *storms, *(want.not_before for want in self.waiting), self.now + 7 * DAY]


# No shrinking: it takes minutes, and a life of forty steps can be read.
PoolMachine.TestCase.settings = settings(
    max_examples=10, stateful_step_count=40, deadline=None, phases=[Phase.reuse, Phase.generate]
)
TestPoolMachine = PoolMachine.TestCase


@pytest.mark.slow
class TestPoolMachineAtLength(PoolMachine.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(TestPoolMachine.settings, max_examples=40)
