"""CredentialCoordinator: keys shared between threads."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentos.core.text.secrets import MASK
from agentos.parallel import (
    CredentialCoordinator,
    CredentialPoolExhaustedException,
    ReservedCredential,
    credentials_from_environment,
)

KEYS = ["canary-key-alpha", "canary-key-beta", "canary-key-gamma"]


def test_a_reserved_credential_is_a_string_whose_repr_hides_it() -> None:
    reserved = CredentialCoordinator(KEYS).reserve("worker")
    assert reserved == KEYS[0] and f"Bearer {reserved}" == f"Bearer {KEYS[0]}"
    assert isinstance(reserved, ReservedCredential) and reserved.lease_id
    assert KEYS[0] not in repr(reserved) and MASK in repr(reserved) and KEYS[0] not in repr([reserved])


def test_an_empty_pool_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one key"):
        CredentialCoordinator([])


def test_a_zero_timeout_never_waits_and_others_are_kept() -> None:
    pool = CredentialCoordinator(KEYS[:1])
    pool.reserve()
    assert pool.reserve(timeout=0) is None
    began = time.monotonic()
    assert pool.reserve(timeout=0.2) is None
    assert 0.2 <= time.monotonic() - began < 5


def test_a_waiter_wakes_when_a_key_is_released() -> None:
    pool = CredentialCoordinator(KEYS[:1])
    held = pool.reserve()
    assert held is not None
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(pool.reserve)
        assert not waiting.done()
        pool.release(held)
        assert waiting.result(5) == held


def test_a_waiter_wakes_when_a_backoff_ends() -> None:
    pool = CredentialCoordinator(KEYS[:1])
    held = pool.reserve()
    assert held is not None
    pool.mark_rate_limited(held, 0.3)
    began = time.monotonic()
    assert pool.reserve(timeout=5) == held
    assert 0.25 < time.monotonic() - began < 3


def test_a_shorter_backoff_never_shortens_a_longer_one() -> None:
    pool = CredentialCoordinator(KEYS[:1])
    pool.mark_rate_limited(KEYS[0], 30)
    pool.mark_rate_limited(KEYS[0], 0.01)
    assert pool.reserve(timeout=0.1) is None
    assert pool.get_stats().rate_limited == 1


def test_a_late_release_never_ends_another_reservation() -> None:
    pool = CredentialCoordinator(KEYS[:1])
    first = pool.reserve("first")
    assert first is not None
    pool.release(first)
    second = pool.reserve("second")
    pool.release(first)
    assert second == first and pool.get_stats().reserved == 1
    pool.mark_rate_limited(first, 30)
    assert pool.get_stats().rate_limited == 1
    assert pool.reserve(timeout=0) is None


def test_unknown_credentials_are_ignored() -> None:
    pool = CredentialCoordinator(KEYS)
    pool.release("nobody's")
    pool.mark_rate_limited("nobody's")
    assert dict(pool.get_stats()) == {"total": 3, "available": 3, "reserved": 0, "rate_limited": 0}


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_an_invalid_backoff_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="must be finite and not negative"):
        CredentialCoordinator(KEYS).mark_rate_limited(KEYS[0], seconds)


def test_a_lease_ends_with_its_block_and_raises_if_none_is_available() -> None:
    pool = CredentialCoordinator(KEYS[:1])
    with pool.lease("first") as key:
        assert pool.get_available_count() == 0 and key == KEYS[0]
        with pytest.raises(CredentialPoolExhaustedException, match="1 of 1 reserved"), pool.lease(timeout=0):
            pass
    assert pool.get_available_count() == 1


def test_aliases_work_like_the_methods() -> None:
    pool = CredentialCoordinator(KEYS[:1])
    key = pool.reserve_credential("x", timeout=0)
    assert key is not None
    pool.release_credential(key)
    with pool.acquire_credential("x", timeout=0):
        assert pool.get_available_count() == 0


def test_a_simulated_refusal_affects_only_the_first_reservation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTOS_SIMULATE_429", "true")
    pool = CredentialCoordinator(KEYS)
    assert pool.reserve(timeout=1) == KEYS[1]
    assert dict(pool.get_stats()) == {"total": 3, "available": 1, "reserved": 1, "rate_limited": 1}
    assert pool.reserve(timeout=1) == KEYS[2]
    assert pool.get_stats().rate_limited == 1


def test_credentials_from_the_environment_have_their_base_url_and_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("GEMINI_API_KEY", "GEMINI_API_KEY_1", "OPENAI_API_KEY_1"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GEMINI_API_KEY", "plain")
    assert [one.secret.reveal() for one in credentials_from_environment("gemini")] == ["plain"]
    monkeypatch.setenv("GEMINI_API_KEY_7", "seventh")
    monkeypatch.setenv("GEMINI_API_KEY_2", "second")
    monkeypatch.setenv("GEMINI_BASE_URL_2", "http://127.0.0.1:1")
    monkeypatch.setenv("GEMINI_MODEL_2", "flash")
    monkeypatch.setenv("OPENAI_API_KEY_1", "other")
    second, seventh = credentials_from_environment("gemini")
    assert (second.base_url, second.model, seventh.model) == ("http://127.0.0.1:1", "flash", None)
    reserved = CredentialCoordinator([second, seventh]).reserve()
    assert reserved == "second" and (reserved.base_url, reserved.model) == ("http://127.0.0.1:1", "flash")
    with pytest.raises(ValueError, match="expected one of gemini"):
        credentials_from_environment("nobody")


@settings(max_examples=8, deadline=None)
@given(keys=st.integers(1, 4), threads=st.integers(2, 12), limited=st.booleans())
def test_no_key_is_held_twice_and_every_waiter_is_served(keys: int, threads: int, limited: bool) -> None:
    pool = CredentialCoordinator([f"key-number-{n}" for n in range(keys)])
    held: set[str] = set()
    guard = threading.Lock()

    def work(number: int) -> int:
        for turn in range(10):
            key = pool.reserve(f"worker-{number}", timeout=20)
            assert key is not None
            with guard:
                assert key not in held
                held.add(key)
            stats = pool.get_stats()
            assert stats.total == keys == stats.available + stats.reserved + stats.rate_limited
            with guard:
                held.discard(key)
            if limited and turn == number % 10:
                pool.mark_rate_limited(key, 0.01)
            else:
                pool.release(key)
        return 10

    with ThreadPoolExecutor(threads) as crew:
        assert sum(crew.map(work, range(threads))) == 10 * threads
    time.sleep(0.02)
    assert pool.get_available_count() == keys


class Life(RuleBasedStateMachine):
    """A pool beside the simplest account of it: who has which reservation, and which keys rest."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = CredentialCoordinator(KEYS)
        self.held: list[ReservedCredential] = []
        self.gone: list[ReservedCredential] = []
        self.resting: set[str] = set()

    @rule()
    def reserve(self) -> None:
        free = set(KEYS) - set(self.held) - self.resting
        key = self.pool.reserve(timeout=0)
        assert (key is not None) == bool(free)
        if key is not None:
            assert key in free
            self.held.append(key)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        key = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.gone.append(key)
        self.pool.release(key)

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def release_late(self, data: st.DataObject) -> None:
        self.pool.release(data.draw(st.sampled_from(self.gone)))

    @precondition(lambda self: self.held)
    @rule()
    def limit(self) -> None:
        key = self.held.pop()
        self.gone.append(key)
        self.resting.add(key)
        self.pool.mark_rate_limited(key, 3600)

    @invariant()
    def every_key_is_counted_once(self) -> None:
        stats = self.pool.get_stats()
        assert (stats.reserved, stats.rate_limited) == (len(self.held), len(self.resting))
        assert stats.available == len(KEYS) - len(self.held) - len(self.resting)


Life.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestLife = Life.TestCase
