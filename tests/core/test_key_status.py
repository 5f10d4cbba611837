"""The status of a key, per model where its models differ."""

from dataclasses import replace

from agentos.core.constants import DAY
from agentos.core.quota.credentials import KeyState
from agentos.core.quota.key_status import KeyStatus, key_statuses
from agentos.core.quota.pool import Pool

from .builders import key, lease_request


def test_a_state_shared_by_all_models_names_no_model() -> None:
    pool = Pool([key("key-1")])
    assert key_statuses(pool, "key-1", 0.0) == [KeyStatus(KeyState.AVAILABLE)]
    pool.bucket("key-1", "pro").cooldown.start(0.0, 60.0, "429")
    assert key_statuses(pool, "key-1", 20.0) == [KeyStatus(KeyState.RATE_LIMITED, 40.0)]
    for model in ("pro", "flash"):
        pool.bucket("key-1", model).cooldown.start_exhausted(0.0, DAY, "429 a day")
    pool.bucket("key-1", "flash").cooldown.exhausted_until -= 0.01
    assert key_statuses(pool, "key-1", 100.0) == [KeyStatus(KeyState.EXHAUSTED, DAY - 100)]


def test_the_only_model_that_was_called_is_named_if_the_key_may_not_use_it() -> None:
    pool = Pool([key("key-1")])
    pool.bucket("key-1", "pro").cooldown.start_no_access(0.0, "403 forbidden")
    (status,) = key_statuses(pool, "key-1", 0.0)
    assert (status.state, status.models) == (KeyState.NO_ACCESS, ("pro",))


def test_models_in_different_states_are_listed_usable_first() -> None:
    pool = Pool([key("key-1")])
    pool.bucket("key-1", "pro")
    pool.bucket("key-1", "flash").cooldown.start_exhausted(0.0, DAY, "429 a day")
    pool.bucket("key-1", "lite").cooldown.start(0.0, 60.0, "429")
    cooling_down = [
        KeyStatus(KeyState.RATE_LIMITED, 60.0, ("lite",)),
        KeyStatus(KeyState.EXHAUSTED, DAY, ("flash",)),
    ]
    assert key_statuses(pool, "key-1", 0.0) == [KeyStatus(KeyState.AVAILABLE, 0.0, ("pro",)), *cooling_down]
    pool.request(lease_request("a"))
    pool.grant(0.0)
    assert key_statuses(pool, "key-1", 0.0) == [KeyStatus(KeyState.RESERVED, 0.0, ("", "pro")), *cooling_down]


def test_a_key_bound_to_one_model_has_the_status_of_that_model() -> None:
    pool = Pool([replace(key("key-1", bucket="team"), model="pro"), key("key-2", bucket="team")])
    pool.bucket("key-1", "pro").cooldown.start(0.0, 60.0, "429")
    pool.bucket("key-2", "flash")
    assert key_statuses(pool, "key-1", 0.0) == [KeyStatus(KeyState.RATE_LIMITED, 60.0)]
    assert len(key_statuses(pool, "key-2", 0.0)) == 2


def test_a_quarantined_or_disabled_key_is_so_for_every_model() -> None:
    pool = Pool([key("key-1"), replace(key("key-2"), enabled=False)])
    for name in ("key-1", "key-2"):
        pool.bucket(name, "pro").cooldown.start(0.0, 60.0, "429")
        pool.bucket(name, "flash")
    pool.quarantine("key-1", "401")
    assert key_statuses(pool, "key-1", 0.0) == [KeyStatus(KeyState.QUARANTINED)]
    assert key_statuses(pool, "key-2", 0.0) == [KeyStatus(KeyState.DISABLED)]
