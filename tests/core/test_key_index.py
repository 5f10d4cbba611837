"""Large pools find their keys through an index: they decide as small ones do, without looking at every key."""

import random
import time

import pytest

from agentos.core.quota.credentials import Credential
from agentos.core.quota.key_index import MAX_PASSED, REFRESH_INTERVAL, KeyIndex, OpensAt
from agentos.core.quota.keys import Key
from agentos.core.quota.lease import Lease, LeaseRequest
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.limits import CallCost, Counting, Dimension, Rate
from agentos.core.text.secrets import Secret
from tests.core.builders import proven_pool

NO_INDEX = 10**9
MODELS = ("large", "small")


def credentials(number: int, rng: random.Random) -> list[Credential]:
    rates = [
        ((Dimension.REQUESTS, Rate(3.0, 10.0)),),
        ((Dimension.REQUESTS, Rate(5.0, 20.0)), (Dimension.TOKENS, Rate(4000.0, 20.0))),
        ((Dimension.INPUT, Rate(3000.0, 15.0)), (Dimension.REQUESTS, Rate(50.0, 1.0))),
    ]
    return [
        Credential(
            f"key-{n}",
            "gemini" if n % 3 else "openai",
            Secret(f"secret-{n}"),
            bucket=f"bucket-{n % 7}" if n % 5 == 0 else "",
            concurrency=rng.choice((1, 2)),
            rates=rng.choice(rates),
        )
        for n in range(number)
    ]


class Twins:
    """Two pools with the same keys that see the same events: one with an index, the other without."""

    def __init__(self, keys: int, rng: random.Random) -> None:
        found = credentials(keys, rng)
        self.pools = [proven_pool(found, 0), proven_pool(found, NO_INDEX)]
        for pool in self.pools:
            for credential in found:
                # Of many keys only some are considered for the probe that would find this out.
                pool.bucket(credential.name).limiter.profile.counting = Counting.SLIDING
        self.held: list[tuple[Lease, Lease]] = []
        self.granted = 0
        self._rng = rng

    def request(self, number: int, now: float) -> None:
        rng = self._rng
        providers = rng.choice((("gemini",), ("openai",), ("gemini", "openai")))
        cost = CallCost(rng.choice((10, 700, 2500)), rng.choice((10, 900)))
        models = (rng.choice(MODELS),) * len(providers)
        delay = rng.choice((0.0, 0.0, 0.0, 2.0))
        wanted = LeaseRequest(
            f"item-{number}", "call", providers, now, now + delay, models, cost, rng.choice((0, 3))
        )
        for pool in self.pools:
            pool.request(wanted)

    def grant(self, now: float) -> None:
        first, second = (pool.grant(now) for pool in self.pools)
        assert [_seen(lease) for lease in first] == [_seen(lease) for lease in second]
        self.held += zip(first, second, strict=True)
        self.granted += len(first)

    def end_one(self, now: float) -> None:
        """A call ends: answered, refused, rejected, or its holder is gone."""
        leases = self.held.pop(self._rng.randrange(len(self.held)))
        endings = ("answered", "limited", "rejected", "dropped", "failed")
        (ending,) = self._rng.choices(endings, weights=(60, 15, 1, 5, 10))
        for pool, lease in zip(self.pools, leases, strict=True):
            _end(pool, lease, ending, now)


def _seen(lease: Lease) -> tuple[str, str, str]:
    return (lease.request.holder, lease.credential.name, lease.model)


def _end(pool: Pool, lease: Lease, ending: str, now: float) -> None:
    if ending == "dropped":
        pool.drop_holder(lease.request.holder)
        return
    pool.release(lease.id)
    bucket = pool.bucket(lease.credential.name, lease.model)
    match ending:
        case "answered":
            bucket.limiter.settle(lease.reservation, CallCost(lease.request.cost.input_tokens, 5), now)
            bucket.cooldown.record_success(lease.granted_at)
        case "limited":
            bucket.limiter.cancel(lease.reservation, now)
            bucket.cooldown.start(now, 3.0, "429")
        case "rejected":
            pool.quarantine(lease.credential.name, "401")
        case _:
            bucket.limiter.drop(lease.reservation, now)
            pool.breaker(lease.credential.provider, lease.model).record_failure(
                lease.granted_at, now, lambda: 0.5
            )


@pytest.mark.parametrize("seed", range(12))
def test_an_indexed_pool_grants_the_same_leases_at_the_same_times(seed: int) -> None:
    rng = random.Random(seed)
    twins, now = Twins(rng.choice((3, 20, 90)), rng), 100.0
    for number in range(500):
        now += rng.choice((0.0, 0.01, 0.3, 2.0))
        for _ in range(rng.choice((0, 1, 4))):
            twins.request(number, now)
        while twins.held and rng.random() < 0.7:
            twins.end_one(now)
        twins.grant(now)
        indexed, plain = (pool.wake_at(now) or 1e9 for pool in twins.pools)
        if min(indexed, plain) < 1e9 and rng.random() < 0.3:
            now, before = max(now, min(indexed, plain)), twins.granted
            twins.grant(now)
            assert indexed <= plain or twins.granted == before, "woken too late"
    assert twins.granted > 20


def test_a_decision_takes_about_as_long_with_a_hundred_times_the_keys() -> None:
    def seconds(keys: int) -> float:
        found = [
            Credential(
                f"key-{n}", "gemini", Secret(f"s-{n}"), rates=((Dimension.REQUESTS, Rate(1.0, 1000.0)),)
            )
            for n in range(keys)
        ]
        pool = proven_pool(found, 0)
        for number in range(keys + 1000):
            pool.request(LeaseRequest(f"item-{number}", "call", ("gemini",), 0.0, models=("m",)))
        leases = pool.grant(0.0)
        assert len(leases) == keys
        began = time.process_time()
        for number in range(300):
            pool.release(leases[number % keys].id)
            assert not pool.grant(5.0 + number / 1000)
        return time.process_time() - began

    # It would be a hundred times as long if every key were looked at.
    assert min(seconds(10_000) for _ in range(2)) < 15 * min(seconds(100) for _ in range(3))


def index_of(count: int, opens_at: OpensAt, allowed_at: OpensAt) -> KeyIndex:
    keys = [Key(Credential(f"key-{n}", "gemini", Secret(f"secret-{n}")), []) for n in range(count)]
    return KeyIndex(keys, opens_at, allowed_at)


def number_of(key: Key) -> int:
    return int(key.credential.name.removeprefix("key-"))


def test_keys_behind_many_that_are_held_back_are_tried_next() -> None:
    held_back = MAX_PASSED + 50
    index = index_of(
        held_back + 10,
        lambda key, request, now: 0.0,
        lambda key, request, now: now + 10.0 if number_of(key) < held_back else now,
    )
    request = LeaseRequest("item", "call", ("gemini",), 0.0)
    assert index.pick(request, 0.0, None).key is None
    found = index.pick(request, 0.01, None).key
    assert found is not None and number_of(found) >= held_back


def test_what_is_found_right_after_a_refresh_is_considered_soon() -> None:
    opening = 60.0
    index = index_of(100, lambda key, request, now: opening, lambda key, request, now: opening)
    request = LeaseRequest("item", "call", ("gemini",), 0.0)
    assert index.pick(request, 0.0, "first").next_at == 60.0
    opening = 0.0
    pick = index.pick(request, 0.1, "second")
    assert pick.key is None and pick.next_at == REFRESH_INTERVAL
    assert index.pick(request, pick.next_at, "second").key is not None
