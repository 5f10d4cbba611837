"""The promises of the key pool, one at a time; the state machine combines them."""

from dataclasses import replace

from agentos.core.quota.credentials import KeyState
from agentos.core.quota.keys import FIRST_CALL_GRACE
from agentos.core.quota.lease import Lease, LeaseRequest
from agentos.core.quota.pool import Pool
from agentos.core.text.secrets import Secret

from .builders import key, keys, lease_request, proven_pool, steady


def granted(pool: Pool, now: float = 0.0) -> list[tuple[str, str]]:
    return [(lease.request.holder, lease.credential.name) for lease in pool.grant(now)]


def only(leases: list[Lease]) -> Lease:
    (lease,) = leases
    return lease


def test_requests_are_served_in_order_of_arrival() -> None:
    pool = Pool(keys(2))
    for holder in ("LLD-1", "LLD-2", "LLD-3"):
        pool.request(lease_request(holder))
    assert granted(pool) == [("LLD-1", "key-1"), ("LLD-2", "key-2")]
    assert repr(pool) == "<Pool 2 keys, 2 leased, 1 waiting>"


def test_the_least_recently_used_key_is_used_first() -> None:
    pool = Pool(keys(2))
    for now in (1.0, 2.0):
        pool.request(lease_request("LLD-1"))
        pool.release(only(pool.grant(now)).id)
    pool.request(lease_request("LLD-1"))
    assert granted(pool, 3.0) == [("LLD-1", "key-1")]


def test_a_request_in_backoff_lets_later_ones_pass() -> None:
    pool = Pool(keys(1))
    pool.request(lease_request("LLD-1", not_before=5.0))
    pool.request(lease_request("LLD-2"))
    assert granted(pool) == [("LLD-2", "key-1")]
    assert pool.wake_at(0.0) == 5.0


def test_the_first_call_of_a_key_is_sent_alone() -> None:
    pool = Pool([key("key-1", concurrency=2)])
    for holder in ("LLD-1", "LLD-2", "LLD-3"):
        pool.request(lease_request(holder))
    assert granted(pool, 0.0) == [("LLD-1", "key-1")]
    assert pool.wake_at(0.0) == FIRST_CALL_GRACE and granted(pool, FIRST_CALL_GRACE) == [("LLD-2", "key-1")]


def test_a_proven_key_stays_proven_when_the_credentials_change() -> None:
    pool = proven_pool([key("key-1", concurrency=2)])
    pool.replace([key("key-1", concurrency=3)])
    for holder in ("LLD-1", "LLD-2", "LLD-3"):
        pool.request(lease_request(holder))
    assert len(pool.grant(0.0)) == 3


def test_a_key_with_concurrency_two_serves_two_calls() -> None:
    pool = proven_pool([key("key-1", concurrency=2)])
    for holder in ("LLD-1", "LLD-2", "LLD-3"):
        pool.request(lease_request(holder))
    assert len(pool.grant(0.0)) == 2
    assert pool.keys.state("key-1", 0.0) is KeyState.RESERVED


def test_a_key_serves_only_requests_that_name_its_provider() -> None:
    pool = Pool([key("key-1", provider="anthropic")])
    pool.request(lease_request("LLD-1"))
    assert granted(pool) == []
    pool.request(LeaseRequest("LLD-2", "call-1", ("gemini", "anthropic"), 0.0))
    assert granted(pool) == [("LLD-2", "key-1")]


def test_a_limited_key_is_used_again_when_its_hint_is_over() -> None:
    pool = Pool(keys(1))
    pool.bucket("key-1").cooldown.start(10.0, 30.0, "429")
    pool.request(lease_request("LLD-1"))
    assert granted(pool, 39.9) == []
    assert pool.keys.state("key-1", 39.9) is KeyState.RATE_LIMITED
    assert pool.wake_at(10.0) == 40.0
    assert granted(pool, 40.0) == [("LLD-1", "key-1")]


def test_keys_of_one_bucket_cool_down_together() -> None:
    pool = Pool([key("key-1", bucket="project"), key("key-2", bucket="project"), key("key-3")])
    pool.bucket("key-1").cooldown.start(0.0, 30.0, "429")
    states = [pool.keys.state(name, 1.0) for name in pool.keys.names()]
    assert states == [KeyState.RATE_LIMITED, KeyState.RATE_LIMITED, KeyState.AVAILABLE]
    assert pool.keys.usable_slots(1.0) == 1


def test_an_exhausted_day_is_probed_by_one_call_per_hour() -> None:
    pool = proven_pool([key("key-1", concurrency=3)])
    pool.bucket("key-1").cooldown.start_exhausted(0.0, 80000.0, "429")
    for holder in ("LLD-1", "LLD-2"):
        pool.request(lease_request(holder))
    assert granted(pool, 3599.0) == []
    assert granted(pool, 3600.0) == [("LLD-1", "key-1")]
    assert pool.keys.state("key-1", 3600.0) is KeyState.EXHAUSTED
    assert granted(pool, 3601.0) == []
    assert pool.wake_at(3601.0) == 3600.0 + 3600.0


def test_dropping_a_holder_removes_its_leases_and_requests() -> None:
    pool = Pool(keys(1))
    for holder in ("LLD-1", "LLD-1", "LLD-2"):
        pool.request(lease_request(holder))
    pool.grant(0.0)
    pool.drop_holder("LLD-1")
    assert granted(pool) == [("LLD-2", "key-1")]


def test_releasing_a_dropped_lease_changes_nothing() -> None:
    pool = Pool(keys(1))
    pool.request(lease_request("LLD-1"))
    first = only(pool.grant(0.0))
    pool.drop_holder("LLD-1")
    pool.request(lease_request("LLD-2"))
    second = only(pool.grant(1.0))
    assert pool.release(first.id) is None
    assert pool.lease(second.id) is second


def test_a_quarantined_key_is_not_used_until_the_credentials_change() -> None:
    pool = Pool(keys(1))
    pool.quarantine("key-1", "401 unauthorised")
    assert pool.keys.active() == []
    assert pool.keys.quarantined() == {"key-1": "401 unauthorised"}
    pool.replace(keys(1))
    assert pool.keys.state("key-1", 0.0) is KeyState.AVAILABLE


def test_a_disabled_key_is_not_used() -> None:
    pool = Pool([replace(key("key-1"), enabled=False)])
    assert pool.keys.state("key-1", 0.0) is KeyState.DISABLED
    assert pool.keys.active() == [] and pool.keys.usable_slots(0.0) == 0


def test_a_changed_secret_is_a_new_key_under_the_old_name() -> None:
    pool = Pool(keys(1))
    pool.bucket("key-1").cooldown.start(0.0, 30.0, "429")
    pool.replace([replace(key("key-1"), secret=Secret("another one"))])
    assert pool.keys.state("key-1", 1.0) is KeyState.AVAILABLE


def test_a_renamed_key_keeps_its_cooldown_and_its_lease() -> None:
    pool = Pool([key("key-1"), replace(key("key-2"), concurrency=2)])
    pool.request(lease_request("LLD-1"))
    pool.request(lease_request("LLD-2"))
    _, second = pool.grant(0.0)
    pool.bucket("key-2").cooldown.start(0.0, 30.0, "429")
    pool.replace([replace(key("key-2"), name="key-1")])
    assert pool.keys.state("key-1", 1.0) is KeyState.RATE_LIMITED
    assert pool.keys.state("key-1", 30.0) is KeyState.RESERVED
    assert pool.keys.current_name(second.credential) == "key-1"
    pool.release(second.id)
    assert pool.keys.state("key-1", 30.0) is KeyState.AVAILABLE


def test_a_bucket_stays_in_cooldown_when_one_of_its_keys_is_removed() -> None:
    pool = Pool([key("key-1", bucket="project"), key("key-2", bucket="project")])
    pool.bucket("key-1").cooldown.start(0.0, 30.0, "429")
    pool.replace([key("key-2", bucket="project")])
    assert pool.keys.state("key-2", 1.0) is KeyState.RATE_LIMITED


def test_a_key_removed_and_added_during_a_call_is_still_in_use() -> None:
    pool = Pool(keys(1))
    pool.request(lease_request("LLD-1"))
    pool.grant(0.0)
    pool.replace([])
    pool.replace(keys(1))
    pool.request(lease_request("LLD-2"))
    assert granted(pool, 1.0) == []


def test_an_open_breaker_admits_one_probe_when_it_is_due() -> None:
    pool = Pool(keys(3))
    for _ in range(5):
        pool.breaker("gemini").record_failure(0.0, 0.0, steady)
    for holder in ("LLD-1", "LLD-2"):
        pool.request(lease_request(holder))
    assert granted(pool, 1.9) == []
    assert pool.wake_at(0.0) == 2.0
    assert granted(pool, 2.0) == [("LLD-1", "key-1")]
    assert pool.open_breakers() == [("gemini", "", 0.0)]


def test_a_model_that_fails_does_not_hold_back_another_model_of_its_provider() -> None:
    pool = Pool(keys(2))
    for _ in range(8):
        pool.breaker("gemini", "broken").record_failure(0.0, 0.0, steady)
    pool.request(lease_request("LLD-1", models=("broken",)))
    pool.request(lease_request("LLD-2", models=("sound",)))
    assert granted(pool, 0.5) == [("LLD-2", "key-1")]
    assert pool.open_breakers() == [("gemini", "broken", 0.0)]


def test_a_probe_whose_holder_died_does_not_block_the_next_probe() -> None:
    pool = Pool(keys(2))
    for _ in range(5):
        pool.breaker("gemini").record_failure(0.0, 0.0, steady)
    for holder in ("LLD-1", "LLD-2"):
        pool.request(lease_request(holder))
    pool.grant(2.0)
    pool.drop_holder("LLD-1")
    assert granted(pool, 3.0) == [("LLD-2", "key-2")]


def test_an_exhausted_key_with_a_call_in_flight_wakes_the_pool_at_its_reset() -> None:
    pool = Pool([key("key-1", concurrency=2)])
    pool.request(lease_request("LLD-1"))
    pool.grant(0.0)
    pool.bucket("key-1").cooldown.start_exhausted(0.0, 600.0, "429")
    pool.request(lease_request("LLD-2"))
    assert granted(pool, 36.0) == []
    assert pool.wake_at(36.0) == 600.0
    assert granted(pool, 600.0) == [("LLD-2", "key-1")]


def test_a_model_that_is_not_requested_here_makes_no_key_usable() -> None:
    """One key was used for another model before; all are exhausted for the model requested now."""
    pool = Pool(keys(4))
    pool.bucket("key-1", "flash")
    for name in pool.keys.names():
        pool.bucket(name, "pro").cooldown.start_exhausted(0.0, 3600.0, "429 a day")
    assert pool.keys.usable_slots(1.0) == 1, "without a request, any model counts"
    pool.request(lease_request("a")._replace(models=("pro",)))
    assert pool.keys.usable_slots(1.0) == 0
    assert pool.keys.state("key-1", 1.0) is KeyState.EXHAUSTED
    pool.replace(keys(4))
    assert pool.keys.usable_slots(1.0) == 0, "also after an edit of the credentials"


def test_a_key_never_used_for_a_model_is_usable_for_it() -> None:
    pool = proven_pool(keys(2))
    for model in ("pro", "flash"):
        pool.request(lease_request(model)._replace(models=(model,)))
    for name in pool.keys.names():
        pool.bucket(name, "pro").cooldown.start_exhausted(0.0, 3600.0, "429 a day")
    assert pool.keys.usable_slots(1.0) == 2, "both for flash"
