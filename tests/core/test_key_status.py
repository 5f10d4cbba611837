"""How a key stands, model by model where they differ."""

from dataclasses import replace

from agentos.core.quota.credentials import KeyState
from agentos.core.quota.key_status import KeyStatus, key_statuses
from agentos.core.quota.pool import Pool

from .builders import key, want

DAY = 86400.0


def test_one_state_needs_no_model() -> None:
    pool = Pool([key("key-1")])
    assert key_statuses(pool, "key-1", 0.0) == [KeyStatus(KeyState.AVAILABLE)]
    pool.bucket("key-1", "pro").cooldown.start(0.0, 60.0, "429")
    assert key_statuses(pool, "key-1", 20.0) == [KeyStatus(KeyState.RATE_LIMITED, 40.0)]
    for model in ("pro", "flash"):
        pool.bucket("key-1", model).cooldown.start_exhausted(0.0, DAY, "429 a day")
    pool.bucket("key-1", "flash").cooldown.exhausted_until -= 0.01
    assert key_statuses(pool, "key-1", 100.0) == [KeyStatus(KeyState.EXHAUSTED, DAY - 100)]


def test_models_that_differ_are_named_the_one_that_can_serve_first() -> None:
    pool = Pool([key("key-1")])
    pool.bucket("key-1", "pro")
    pool.bucket("key-1", "flash").cooldown.start_exhausted(0.0, DAY, "429 a day")
    pool.bucket("key-1", "lite").cooldown.start(0.0, 60.0, "429")
    rest = [
        KeyStatus(KeyState.RATE_LIMITED, 60.0, ("lite",)),
        KeyStatus(KeyState.EXHAUSTED, DAY, ("flash",)),
    ]
    assert key_statuses(pool, "key-1", 0.0) == [KeyStatus(KeyState.AVAILABLE, 0.0, ("pro",)), *rest]
    pool.request(want("a"))
    pool.grant(0.0)
    assert key_statuses(pool, "key-1", 0.0) == [KeyStatus(KeyState.RESERVED, 0.0, ("", "pro")), *rest]


def test_a_key_with_a_model_of_its_own_stands_as_that_one_does() -> None:
    pool = Pool([replace(key("key-1", bucket="team"), model="pro"), key("key-2", bucket="team")])
    pool.bucket("key-1", "pro").cooldown.start(0.0, 60.0, "429")
    pool.bucket("key-2", "flash")
    assert key_statuses(pool, "key-1", 0.0) == [KeyStatus(KeyState.RATE_LIMITED, 60.0)]
    assert len(key_statuses(pool, "key-2", 0.0)) == 2


def test_a_key_that_is_rejected_or_disabled_is_so_for_every_model() -> None:
    pool = Pool([key("key-1"), replace(key("key-2"), enabled=False)])
    for name in ("key-1", "key-2"):
        pool.bucket(name, "pro").cooldown.start(0.0, 60.0, "429")
        pool.bucket(name, "flash")
    pool.quarantine("key-1", "401")
    assert key_statuses(pool, "key-1", 0.0) == [KeyStatus(KeyState.QUARANTINED)]
    assert key_statuses(pool, "key-2", 0.0) == [KeyStatus(KeyState.DISABLED)]
