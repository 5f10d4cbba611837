"""The pool, one promise at a time; the state machine tries them together."""

from dataclasses import replace

from agentos.core.quota.credentials import KeyState
from agentos.core.quota.keys import FIRST_CALL_GRACE
from agentos.core.quota.lease import Lease, LeaseRequest
from agentos.core.quota.pool import Pool
from agentos.core.text.secrets import Secret

from .builders import key, keys, proven, steady, want


def granted(pool: Pool, now: float = 0.0) -> list[tuple[str, str]]:
    return [(lease.request.holder, lease.credential.name) for lease in pool.grant(now)]


def only(leases: list[Lease]) -> Lease:
    (lease,) = leases
    return lease


def test_wishes_are_served_in_the_order_of_asking() -> None:
    pool = Pool(keys(2))
    for holder in ("LLD-1", "LLD-2", "LLD-3"):
        pool.request(want(holder))
    assert granted(pool) == [("LLD-1", "key-1"), ("LLD-2", "key-2")]
    assert repr(pool) == "<Pool 2 keys, 2 leased, 1 waiting>"


def test_the_key_that_has_rested_longest_goes_first() -> None:
    pool = Pool(keys(2))
    for now in (1.0, 2.0):
        pool.request(want("LLD-1"))
        pool.release(only(pool.grant(now)).id)
    pool.request(want("LLD-1"))
    assert granted(pool, 3.0) == [("LLD-1", "key-1")]


def test_a_wish_that_has_to_wait_lets_later_ones_pass() -> None:
    pool = Pool(keys(1))
    pool.request(want("LLD-1", not_before=5.0))
    pool.request(want("LLD-2"))
    assert granted(pool) == [("LLD-2", "key-1")]
    assert pool.wake_at(0.0) == 5.0


def test_the_first_call_of_a_key_goes_alone_until_it_is_not_refused() -> None:
    pool = Pool([key("key-1", concurrency=2)])
    for holder in ("LLD-1", "LLD-2", "LLD-3"):
        pool.request(want(holder))
    assert granted(pool, 0.0) == [("LLD-1", "key-1")]
    assert pool.wake_at(0.0) == FIRST_CALL_GRACE and granted(pool, FIRST_CALL_GRACE) == [("LLD-2", "key-1")]


def test_a_key_that_has_served_before_is_not_tried_again_when_the_list_changes() -> None:
    pool = proven([key("key-1", concurrency=2)])
    pool.replace([key("key-1", concurrency=3)])
    for holder in ("LLD-1", "LLD-2", "LLD-3"):
        pool.request(want(holder))
    assert len(pool.grant(0.0)) == 3


def test_a_key_with_a_concurrency_of_two_carries_two_calls() -> None:
    pool = proven([key("key-1", concurrency=2)])
    for holder in ("LLD-1", "LLD-2", "LLD-3"):
        pool.request(want(holder))
    assert len(pool.grant(0.0)) == 2
    assert pool.keys.state("key-1", 0.0) is KeyState.RESERVED


def test_a_key_of_another_provider_serves_nobody_who_did_not_name_it() -> None:
    pool = Pool([key("key-1", provider="anthropic")])
    pool.request(want("LLD-1"))
    assert granted(pool) == []
    pool.request(LeaseRequest("LLD-2", "call-1", ("gemini", "anthropic"), 0.0))
    assert granted(pool) == [("LLD-2", "key-1")]


def test_a_limited_key_rests_and_comes_back_at_the_named_time() -> None:
    pool = Pool(keys(1))
    pool.bucket("key-1").cooldown.start(10.0, 30.0, "429")
    pool.request(want("LLD-1"))
    assert granted(pool, 39.9) == []
    assert pool.keys.state("key-1", 39.9) is KeyState.RATE_LIMITED
    assert pool.wake_at(10.0) == 40.0
    assert granted(pool, 40.0) == [("LLD-1", "key-1")]


def test_keys_of_one_bucket_rest_together() -> None:
    pool = Pool([key("key-1", bucket="project"), key("key-2", bucket="project"), key("key-3")])
    pool.bucket("key-1").cooldown.start(0.0, 30.0, "429")
    states = [pool.keys.state(name, 1.0) for name in pool.keys.names()]
    assert states == [KeyState.RATE_LIMITED, KeyState.RATE_LIMITED, KeyState.AVAILABLE]
    assert pool.keys.usable_slots(1.0) == 1


def test_a_spent_day_is_looked_at_by_one_call_an_hour() -> None:
    pool = proven([key("key-1", concurrency=3)])
    pool.bucket("key-1").cooldown.start_exhausted(0.0, 80000.0, "429")
    for holder in ("LLD-1", "LLD-2"):
        pool.request(want(holder))
    assert granted(pool, 3599.0) == []
    assert granted(pool, 3600.0) == [("LLD-1", "key-1")]
    assert pool.keys.state("key-1", 3600.0) is KeyState.EXHAUSTED
    assert granted(pool, 3601.0) == []
    assert pool.wake_at(3601.0) == 3600.0 + 3600.0


def test_a_dead_holder_holds_nothing_and_waits_for_nothing() -> None:
    pool = Pool(keys(1))
    for holder in ("LLD-1", "LLD-1", "LLD-2"):
        pool.request(want(holder))
    pool.grant(0.0)
    pool.drop_holder("LLD-1")
    assert granted(pool) == [("LLD-2", "key-1")]


def test_a_late_giving_back_changes_nothing() -> None:
    pool = Pool(keys(1))
    pool.request(want("LLD-1"))
    first = only(pool.grant(0.0))
    pool.drop_holder("LLD-1")
    pool.request(want("LLD-2"))
    second = only(pool.grant(1.0))
    assert pool.release(first.id) is None
    assert pool.lease(second.id) is second


def test_a_quarantined_key_is_not_used_until_the_file_changes() -> None:
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


def test_a_key_that_moves_up_in_the_list_keeps_its_rest_and_its_call() -> None:
    pool = Pool([key("key-1"), replace(key("key-2"), concurrency=2)])
    pool.request(want("LLD-1"))
    pool.request(want("LLD-2"))
    _, second = pool.grant(0.0)
    pool.bucket("key-2").cooldown.start(0.0, 30.0, "429")
    pool.replace([replace(key("key-2"), name="key-1")])
    assert pool.keys.state("key-1", 1.0) is KeyState.RATE_LIMITED
    assert pool.keys.state("key-1", 30.0) is KeyState.RESERVED
    assert pool.keys.current_name(second.credential) == "key-1"
    pool.release(second.id)
    assert pool.keys.state("key-1", 30.0) is KeyState.AVAILABLE


def test_a_bucket_rests_on_when_one_of_its_keys_is_removed() -> None:
    pool = Pool([key("key-1", bucket="project"), key("key-2", bucket="project")])
    pool.bucket("key-1").cooldown.start(0.0, 30.0, "429")
    pool.replace([key("key-2", bucket="project")])
    assert pool.keys.state("key-2", 1.0) is KeyState.RATE_LIMITED


def test_a_key_that_comes_back_during_a_call_is_not_given_to_a_second_one() -> None:
    pool = Pool(keys(1))
    pool.request(want("LLD-1"))
    pool.grant(0.0)
    pool.replace([])
    pool.replace(keys(1))
    pool.request(want("LLD-2"))
    assert granted(pool, 1.0) == []


def test_in_a_storm_one_call_goes_through_when_its_time_has_come() -> None:
    pool = Pool(keys(3))
    for _ in range(5):
        pool.breaker("gemini").record_failure(0.0, 0.0, steady)
    for holder in ("LLD-1", "LLD-2"):
        pool.request(want(holder))
    assert granted(pool, 1.9) == []
    assert pool.wake_at(0.0) == 2.0
    assert granted(pool, 2.0) == [("LLD-1", "key-1")]
    assert pool.open_breakers() == [("gemini", 0.0)]


def test_a_probe_whose_holder_died_does_not_keep_the_storm_closed() -> None:
    pool = Pool(keys(2))
    for _ in range(5):
        pool.breaker("gemini").record_failure(0.0, 0.0, steady)
    for holder in ("LLD-1", "LLD-2"):
        pool.request(want(holder))
    pool.grant(2.0)
    pool.drop_holder("LLD-1")
    assert granted(pool, 3.0) == [("LLD-2", "key-2")]


def test_a_spent_key_whose_call_is_still_under_way_wakes_the_pool_at_the_end_of_its_day() -> None:
    pool = Pool([key("key-1", concurrency=2)])
    pool.request(want("LLD-1"))
    pool.grant(0.0)
    pool.bucket("key-1").cooldown.start_exhausted(0.0, 600.0, "429")
    pool.request(want("LLD-2"))
    assert granted(pool, 36.0) == []
    assert pool.wake_at(36.0) == 600.0
    assert granted(pool, 600.0) == [("LLD-2", "key-1")]


def test_a_model_that_nobody_here_asks_for_makes_no_key_usable() -> None:
    """Another model was used before, with one key; all are spent for the one that is asked for now."""
    pool = Pool(keys(4))
    pool.bucket("key-1", "flash")
    for name in pool.keys.names():
        pool.bucket(name, "pro").cooldown.start_exhausted(0.0, 3600.0, "429 a day")
    assert pool.keys.usable_slots(1.0) == 1, "as long as nobody has asked, any model counts"
    pool.request(want("a")._replace(models=("pro",)))
    assert pool.keys.usable_slots(1.0) == 0
    assert pool.keys.state("key-1", 1.0) is KeyState.EXHAUSTED
    pool.replace(keys(4))
    assert pool.keys.usable_slots(1.0) == 0, "also after an edit of the file"


def test_a_key_that_was_never_asked_for_a_model_is_usable_for_it() -> None:
    pool = proven(keys(2))
    for model in ("pro", "flash"):
        pool.request(want(model)._replace(models=(model,)))
    for name in pool.keys.names():
        pool.bucket(name, "pro").cooldown.start_exhausted(0.0, 3600.0, "429 a day")
    assert pool.keys.usable_slots(1.0) == 2, "both for flash"
