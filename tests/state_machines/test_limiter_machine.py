"""Random lives of a pool whose keys have known rates: no window is ever overfull, nobody oversleeps."""

import copy
from dataclasses import dataclass

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentos.core.protocol.peer_notes import BucketLimitsLearned, CallEnded, CallStarted, RunGone
from agentos.core.quota.credentials import Credential
from agentos.core.quota.lease import Lease, LeaseRequest
from agentos.core.quota.pool import MAX_OVERTAKING, Pool
from agentos.core.ratelimit.limits import CallCost, Dimension, Rate
from agentos.core.ratelimit.provider_profile import Counting
from agentos.core.text.secrets import Secret
from tests.core.builders import proven

MODELS = ("small", "large")
HAIR = 1e-6
loads = st.builds(CallCost, st.integers(0, 60), st.integers(0, 60))
steps = st.floats(0.01, 3.0) | st.sampled_from((1.0, 10.0, 61.0, 86500.0))
amounts = st.integers(1, 6)
rate_tables = st.fixed_dictionaries(
    {Dimension.REQUESTS: st.builds(Rate, amounts, st.sampled_from((1.0, 10.0, 60.0)))},
    optional={
        Dimension.TOKENS: st.builds(Rate, st.integers(50, 200), st.just(10.0)),
        Dimension.INPUT: st.builds(Rate, st.integers(30, 90), st.just(60.0)),
        Dimension.DAY: st.builds(Rate, st.integers(4, 40), st.just(86400.0)),
    },
)


@st.composite
def credential_lists(draw: st.DrawFn) -> list[Credential]:
    """The first two share a bucket, and so its rates."""
    tables = [tuple(draw(rate_tables).items()) for _ in range(2)]
    return [
        Credential(
            name=f"key-{number}",
            provider="gemini",
            secret=Secret(f"secret-{number}"),
            bucket="shared" if number < 3 else "",
            concurrency=draw(st.integers(1, 4)),
            rates=tables[number == 3],
        )
        for number in range(1, draw(st.integers(1, 3)) + 1)
    ]


@dataclass(slots=True)
class Sent:
    """What the model remembers of one call."""

    at: float
    load: CallCost


class PacingMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.pool = Pool(())
        self.keys: dict[str, Credential] = {}
        self.sent: dict[tuple[str, str], list[Sent]] = {}
        self.leases: dict[str, Lease] = {}
        self.calls: dict[str, Sent] = {}
        self.foreign: dict[str, CallStarted] = {}
        self.count = 0

    @initialize(credentials=credential_lists())
    def begin(self, credentials: list[Credential]) -> None:
        self.pool = proven(credentials)
        self.keys = {credential.name: credential for credential in credentials}
        # Known, or one call might find it out; the others have tests of their own.
        quota = credentials[0].quota
        self.pool.apply_note(BucketLimitsLearned("earlier", quota, MODELS[0], counting=Counting.SLIDING))

    # What happens.

    @rule(wishes=st.lists(st.tuples(st.sampled_from(MODELS), loads), min_size=1, max_size=6))
    def ask(self, wishes: list[tuple[str, CallCost]]) -> None:
        for model, load in wishes:
            self.count += 1
            holder = f"LLD-{self.count}"
            self.pool.request(LeaseRequest(holder, "call", ("gemini",), self.now, models=(model,), cost=load))
        self.grant()

    @rule()
    def grant(self) -> None:
        for lease in self.pool.grant(self.now):
            self._check_room(lease)
            assert self._carried(lease.credential) < lease.credential.concurrency
            self.leases[lease.id] = lease
            self.calls[lease.id] = self._remember(lease.credential.quota, lease.model, lease.request.cost)
        waiting = self.pool.waiting(self.now)
        # Those who have waited so long are not passed any more, not even by who would fit.
        stern = {want.models for want in waiting if self.now - want.requested_at >= MAX_OVERTAKING}
        for want in waiting:
            if want.models not in stern:
                assert not any(self._has_room(key, want) for key in self.keys.values()), "left over"

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), used=st.none() | loads)
    def answer(self, data: st.DataObject, used: CallCost | None) -> None:
        """The call has used what was thought, or something else; then its room is what it used."""
        self._answer(data.draw(st.sampled_from(sorted(self.leases))), used)
        self.grant()

    @rule(data=st.data(), model=st.sampled_from(MODELS), load=loads)
    def another_run_sends(self, data: st.DataObject, model: str, load: CallCost) -> None:
        credential = self.keys[data.draw(st.sampled_from(sorted(self.keys)))]
        name = f"there-{len(self.foreign)}"
        note = CallStarted("there", name, credential.fingerprint, credential.quota, model, self.now, load)
        self.pool.apply_note(note)
        self.foreign[name] = note
        self._remember(credential.quota, model, load)
        self.grant()

    @precondition(lambda self: self.foreign)
    @rule()
    def another_run_is_gone(self) -> None:
        self.pool.apply_note(RunGone("there"))
        self.foreign.clear()
        self.grant()

    @precondition(lambda self: self.foreign)
    @rule(data=st.data())
    def another_run_has_its_answer(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.foreign)))
        self.pool.apply_note(CallEnded("there", name, self.foreign.pop(name).cost))
        self.grant()

    @rule(seconds=steps)
    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.grant()

    @precondition(lambda self: self.pool.wake_at(self.now) is not None)
    @rule()
    def sleep_until_woken(self) -> None:
        self.now = max(self.now, self.pool.wake_at(self.now) or self.now)
        self.grant()

    # What is true at all times.

    @invariant()
    def nobody_could_be_served_before_the_pool_wakes(self) -> None:
        wakes = self.pool.wake_at(self.now)
        assert wakes is None or wakes > self.now
        for moment in sorted(self._moments()):
            if self.now < moment and (wakes is None or moment < wakes):
                assert not copy.deepcopy(self.pool).grant(moment), "woken too late"

    def teardown(self) -> None:
        """In the end everybody is served: there is always a next moment, and it helps."""
        self.pool.apply_note(RunGone("there"))
        self.foreign.clear()
        for _ in range(20 * (self.count + 1)):
            self.grant()
            for lease in sorted(self.leases):
                self._answer(lease, None)
            self.now = max(self.now, self.pool.wake_at(self.now) or self.now)
        assert self.pool.waiting(self.now) == []

    # How the model sees it.

    def _answer(self, lease_id: str, used: CallCost | None) -> None:
        lease, call = self.leases.pop(lease_id), self.calls.pop(lease_id)
        self.pool.release(lease_id)
        call.load = used or call.load
        name = self.pool.keys.current_name(lease.credential)
        assert name is not None
        self.pool.bucket(name, lease.model).limiter.settle(lease.reservation, call.load)

    def _remember(self, quota: str, model: str, load: CallCost) -> Sent:
        call = Sent(self.now, load)
        self.sent.setdefault((quota, model), []).append(call)
        return call

    def _check_room(self, lease: Lease) -> None:
        before = self.sent.get((lease.credential.quota, lease.model), [])
        for dimension, rate in lease.credential.rates:
            inside = [call for call in before if call.at > self.now - rate.seconds]
            full = sum(call.load.amount(dimension) for call in inside) + lease.request.cost.amount(dimension)
            # What is larger than the whole limit goes when nothing else was sent.
            assert not inside or full <= rate.amount + HAIR, f"over the limit of {dimension}"

    def _has_room(self, key: Credential, want: LeaseRequest) -> bool:
        """Whether the key could take the call, even if what was sent counts a little longer."""
        calls = self.sent.get((key.quota, want.model_for(key)), [])
        for dimension, rate in key.rates:
            inside = [call for call in calls if call.at >= self.now - rate.seconds - 0.2]
            full = sum(call.load.amount(dimension) for call in inside) + want.cost.amount(dimension)
            if inside and full > rate.amount - HAIR:
                return False
        return self._carried(key) < key.concurrency

    def _carried(self, key: Credential) -> int:
        ours = sum(lease.credential.secret == key.secret for lease in self.leases.values())
        return ours + sum(note.key == key.fingerprint for note in self.foreign.values())

    def _moments(self) -> set[float]:
        """Just when an earlier call stops to count, and a while later."""
        found: list[float] = []
        for (quota, _), calls in self.sent.items():
            rates = next(one.rates for one in self.keys.values() if one.quota == quota)
            for _, rate in rates:
                found += [call.at + rate.seconds for call in calls[-5:]]
        return {*found, *(moment + 0.2 for moment in found), self.now + 0.01}


# No shrinking: it takes minutes, and a life of thirty steps can be read.
PacingMachine.TestCase.settings = settings(
    max_examples=10, stateful_step_count=30, deadline=None, phases=[Phase.reuse, Phase.generate]
)
TestPacingMachine = PacingMachine.TestCase


@pytest.mark.slow
class TestPacingMachineAtLength(PacingMachine.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(TestPacingMachine.settings, max_examples=15)
