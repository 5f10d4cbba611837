"""State machine of a pool with known limits: no limit is ever exceeded, no wake-up comes late."""

import copy
from dataclasses import dataclass

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentos.core.constants import DAY
from agentos.core.protocol.peer_notes import BucketLimitsLearned, CallEnded, CallStarted, RunGone
from agentos.core.quota.credentials import Credential
from agentos.core.quota.lease import Lease, LeaseRequest
from agentos.core.quota.pool import MAX_OVERTAKING, Pool
from agentos.core.ratelimit.limits import CallCost, Counting, Dimension, Rate
from agentos.core.text.secrets import Secret
from tests.core.builders import proven_pool

MODELS = ("small", "large")
EPSILON = 1e-6
costs = st.builds(CallCost, st.integers(0, 60), st.integers(0, 60))
steps = st.floats(0.01, 3.0) | st.sampled_from((1.0, 10.0, 61.0, 86500.0))
amounts = st.integers(1, 6)
rate_tables = st.fixed_dictionaries(
    {Dimension.REQUESTS: st.builds(Rate, amounts, st.sampled_from((1.0, 10.0, 60.0)))},
    optional={
        Dimension.TOKENS: st.builds(Rate, st.integers(50, 200), st.just(10.0)),
        Dimension.INPUT: st.builds(Rate, st.integers(30, 90), st.just(60.0)),
        Dimension.DAY: st.builds(Rate, st.integers(4, 40), st.just(DAY)),
    },
)


@st.composite
def credential_lists(draw: st.DrawFn) -> list[Credential]:
    """The first two share a bucket, and so its limits."""
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
class SentCall:
    """What the model records of one call."""

    at: float
    cost: CallCost


class LimiterMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.pool = Pool(())
        self.keys: dict[str, Credential] = {}
        self.sent: dict[tuple[str, str], list[SentCall]] = {}
        self.leases: dict[str, Lease] = {}
        self.calls: dict[str, SentCall] = {}
        self.peer_calls: dict[str, CallStarted] = {}
        self.count = 0
        self.peer_count = 0

    @initialize(credentials=credential_lists())
    def begin(self, credentials: list[Credential]) -> None:
        self.pool = proven_pool(credentials)
        self.keys = {credential.name: credential for credential in credentials}
        # Make the counting known, so that no probe is sent; probes have their own tests.
        quota = credentials[0].quota
        self.pool.apply_note(BucketLimitsLearned("earlier", quota, MODELS[0], counting=Counting.SLIDING))

    # Rules.

    @rule(requests=st.lists(st.tuples(st.sampled_from(MODELS), costs), min_size=1, max_size=6))
    def request(self, requests: list[tuple[str, CallCost]]) -> None:
        for model, cost in requests:
            self.count += 1
            holder = f"LLD-{self.count}"
            self.pool.request(LeaseRequest(holder, "call", ("gemini",), self.now, models=(model,), cost=cost))
        self.grant()

    @rule()
    def grant(self) -> None:
        for lease in self.pool.grant(self.now):
            self._check_room(lease)
            assert self._in_flight(lease.credential) < lease.credential.concurrency
            self.leases[lease.id] = lease
            self.calls[lease.id] = self._record(lease.credential.quota, lease.model, lease.request.cost)
        waiting = self.pool.waiting(self.now)
        # Requests that have waited too long may not be passed, not even by one that would fit.
        not_passable = {
            request.models for request in waiting if self.now - request.requested_at >= MAX_OVERTAKING
        }
        for request in waiting:
            if request.models not in not_passable:
                assert not any(self._has_room(key, request) for key in self.keys.values()), (
                    "a request was left waiting"
                )

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), used=st.none() | costs)
    def answer(self, data: st.DataObject, used: CallCost | None) -> None:
        """Answer a call with its estimated usage or another one."""
        self._answer(data.draw(st.sampled_from(sorted(self.leases))), used)
        self.grant()

    @rule(data=st.data(), model=st.sampled_from(MODELS), cost=costs)
    def another_run_sends(self, data: st.DataObject, model: str, cost: CallCost) -> None:
        credential = self.keys[data.draw(st.sampled_from(sorted(self.keys)))]
        self.peer_count += 1
        name = f"there-{self.peer_count}"
        note = CallStarted("there", name, credential.fingerprint, credential.quota, model, self.now, cost)
        self.pool.apply_note(note)
        self.peer_calls[name] = note
        self._record(credential.quota, model, cost)
        self.grant()

    @precondition(lambda self: self.peer_calls)
    @rule()
    def another_run_is_gone(self) -> None:
        self.pool.apply_note(RunGone("there"))
        self.peer_calls.clear()
        self.grant()

    @precondition(lambda self: self.peer_calls)
    @rule(data=st.data())
    def another_run_is_answered(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.peer_calls)))
        self.pool.apply_note(CallEnded("there", name, self.peer_calls.pop(name).cost))
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

    # Invariants.

    @invariant()
    def no_request_could_be_granted_before_wake_at(self) -> None:
        wake_at = self.pool.wake_at(self.now)
        assert wake_at is None or wake_at > self.now
        for at in sorted(self._moments()):
            if self.now < at and (wake_at is None or at < wake_at):
                assert not copy.deepcopy(self.pool).grant(at), "woken too late"

    def teardown(self) -> None:
        """Eventually every request is granted: waking at `wake_at` always makes progress."""
        self.pool.apply_note(RunGone("there"))
        self.peer_calls.clear()
        for _ in range(20 * (self.count + 1)):
            self.grant()
            for lease in sorted(self.leases):
                self._answer(lease, None)
            self.now = max(self.now, self.pool.wake_at(self.now) or self.now)
        assert self.pool.waiting(self.now) == []

    # The model.

    def _answer(self, lease_id: str, used: CallCost | None) -> None:
        lease, call = self.leases.pop(lease_id), self.calls.pop(lease_id)
        self.pool.release(lease_id)
        call.cost = used or call.cost
        name = self.pool.keys.current_name(lease.credential)
        assert name is not None
        self.pool.bucket(name, lease.model).limiter.settle(lease.reservation, call.cost)

    def _record(self, quota: str, model: str, cost: CallCost) -> SentCall:
        call = SentCall(self.now, cost)
        self.sent.setdefault((quota, model), []).append(call)
        return call

    def _check_room(self, lease: Lease) -> None:
        before = self.sent.get((lease.credential.quota, lease.model), [])
        for dimension, rate in lease.credential.rates:
            inside = [call for call in before if call.at > self.now - rate.seconds]
            used = sum(call.cost.amount(dimension) for call in inside) + lease.request.cost.amount(dimension)
            # A call larger than the whole limit is sent alone.
            assert not inside or used <= rate.amount + EPSILON, f"over the limit of {dimension}"

    def _has_room(self, key: Credential, request: LeaseRequest) -> bool:
        """Return whether the key could serve the call even with some slack in the windows."""
        calls = self.sent.get((key.quota, request.model_for(key)), [])
        for dimension, rate in key.rates:
            inside = [call for call in calls if call.at >= self.now - rate.seconds - 0.2]
            used = sum(call.cost.amount(dimension) for call in inside) + request.cost.amount(dimension)
            if inside and used > rate.amount - EPSILON:
                return False
        return self._in_flight(key) < key.concurrency

    def _in_flight(self, key: Credential) -> int:
        ours = sum(lease.credential.secret == key.secret for lease in self.leases.values())
        return ours + sum(note.key == key.fingerprint for note in self.peer_calls.values())

    def _moments(self) -> set[float]:
        """Moments at which an earlier call expires, and shortly after."""
        found: list[float] = []
        for (quota, _), calls in self.sent.items():
            rates = next(key.rates for key in self.keys.values() if key.quota == quota)
            for _, rate in rates:
                found += [call.at + rate.seconds for call in calls[-5:]]
        return {*found, *(at + 0.2 for at in found), self.now + 0.01}


# No shrinking: it takes minutes, and thirty steps can be read.
LimiterMachine.TestCase.settings = settings(
    max_examples=10, stateful_step_count=30, deadline=None, phases=[Phase.reuse, Phase.generate]
)
TestLimiterMachine = LimiterMachine.TestCase


@pytest.mark.slow
class TestLimiterMachineAtLength(LimiterMachine.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(TestLimiterMachine.settings, max_examples=15)
