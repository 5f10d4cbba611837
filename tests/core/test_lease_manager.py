"""The lease manager and pool monitor: what refusals, answers and waits mean for keys and for the run."""

from dataclasses import replace

import pytest

from agentos.core.protocol import events
from agentos.core.protocol.peer_notes import CooldownStarted
from agentos.core.quota.budget import Budget, PriceList
from agentos.core.quota.credentials import Credential
from agentos.core.quota.key_status import key_statuses
from agentos.core.quota.lease import Lease
from agentos.core.quota.lease_manager import LeaseManager
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.limits import Dimension, Rate
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.core.scheduling.pool_monitor import PoolMonitor
from agentos.core.text.secrets import Secret

from .builders import key, keys, steady

LIMITED = Refusal(RefusalKind.RATE_LIMITED, "429", 30.0)
PROVIDER_ERROR = Refusal(RefusalKind.PROVIDER_ERROR, "503")
REJECTED = Refusal(RefusalKind.KEY_REJECTED, "401 unauthorised")


class LeaseHarness:
    """A lease manager with holders that acquire and release leases."""

    def __init__(self, credentials: list[Credential], max_wait: float = 3600.0) -> None:
        pool = Pool(credentials)
        self.lease_manager = LeaseManager(pool, steady, Budget(PriceList()))
        self.monitor = PoolMonitor(pool, max_wait)

    def request(self, item: str, now: float, call: str = "call-1") -> None:
        self.lease_manager.request(events.LeaseRequested(item, call, ("gemini",)), now)

    def acquire(self, item: str, now: float) -> Lease:
        self.request(item, now)
        (lease,) = self.lease_manager.grants(now)
        return lease

    def release(
        self, lease: Lease, now: float, refusal: Refusal | None = None
    ) -> list[events.SchedulerEvent]:
        released = events.LeaseReleased(lease.request.holder, lease.id, 1.0, refusal=refusal)
        return self.lease_manager.release(released, now)

    def refuse_all(self, refusal: Refusal, now: float) -> None:
        names = [f"LLD-{number}" for number, _ in enumerate(self.lease_manager.pool.keys.names())]
        for lease in [self.acquire(name, now) for name in names]:
            self.release(lease, now, refusal)

    def pool_news(self, now: float) -> list[events.SchedulerEvent]:
        return self.monitor.update(now)


def test_a_refused_key_cools_down_and_the_call_continues_on_another() -> None:
    harness = LeaseHarness(keys(2))
    assert harness.release(harness.acquire("LLD-1", 0.0), 1.0, LIMITED) == [
        events.KeyLimited("key-1", 30.0, "429")
    ]
    assert harness.acquire("LLD-1", 1.0).credential.name == "key-2"


def test_an_exhausted_day_is_reported_with_its_end() -> None:
    harness = LeaseHarness(keys(1))
    refusal = Refusal(RefusalKind.DAY_EXHAUSTED, "429 PerDay", 36.0, 40000.0)
    assert harness.release(harness.acquire("LLD-1", 0.0), 0.0, refusal) == [
        events.KeyExhausted("key-1", 40000.0, "429 PerDay", is_only_key=True)
    ]
    assert harness.release(harness.acquire("LLD-1", 3600.0), 3601.0) == [events.KeyRecovered("key-1")]


def throttled_harness(max_wait: float = 3600.0) -> LeaseHarness:
    """One key with a limit of one call per minute, which is used up."""
    harness = LeaseHarness([replace(key("key-1"), rates=((Dimension.REQUESTS, Rate(1.0, 60.0)),))], max_wait)
    harness.lease_manager.pool.bucket("key-1", "").limiter.profile.start_probe(0.0)
    harness.release(harness.acquire("LLD-1", 0.0), 1.0)
    harness.request("LLD-1", 1.0)
    assert harness.lease_manager.grants(1.0) == []
    return harness


def test_a_long_wait_for_a_limit_is_reported_once_with_its_end() -> None:
    harness = throttled_harness()
    _, paced = harness.pool_news(1.0)
    assert isinstance(paced, events.CallsThrottled) and paced.key == "key-1" and 50.0 < paced.seconds < 61.0
    assert (
        harness.pool_news(2.0) == harness.pool_news(30.0) == [] and harness.monitor.stop_reason(2.0) is None
    )
    (lease,) = harness.lease_manager.grants(1.0 + paced.seconds)
    assert harness.pool_news(1.0 + paced.seconds) == []
    harness.release(lease, 62.0)
    harness.request("LLD-1", 62.0)
    assert harness.lease_manager.grants(62.0) == [] and len(harness.pool_news(62.0)) == 1


def test_a_short_wait_for_a_limit_is_not_reported() -> None:
    harness = throttled_harness()
    harness.lease_manager.grants(57.0)
    assert harness.pool_news(57.0) == [events.PoolLow(1)]


def test_a_limit_that_opens_after_max_wait_stops_the_run() -> None:
    found = throttled_harness(max_wait=10.0).monitor.stop_reason(1.0)
    assert found is not None and found.exit_code == 75 and found.seconds is not None and found.seconds > 50.0
    assert found.detail == "no key may be used within --max-wait; the first is key-1"


def test_without_the_shared_lock_nothing_is_granted_and_it_retries_soon() -> None:
    harness = LeaseHarness(keys(1))
    harness.lease_manager.holds_shared_lock = False
    harness.request("LLD-1", 0.0)
    assert harness.lease_manager.grants(0.0) == []
    assert harness.lease_manager.wake_at(0.0) == pytest.approx(0.02)
    harness.lease_manager.holds_shared_lock = True
    assert [lease.request.holder for lease in harness.lease_manager.grants(0.02)] == ["LLD-1"]


def test_an_exhausted_pool_is_reported_once_until_it_recovers() -> None:
    harness = LeaseHarness(keys(2))
    leases = [harness.acquire("LLD-1", 0.0), harness.acquire("LLD-2", 0.0)]
    assert harness.pool_news(0.0) == []
    harness.request("LLD-3", 1.0)
    assert harness.pool_news(1.0) == [events.PoolExhausted(waiting=1, slots=2)]
    harness.request("LLD-4", 2.0)
    assert harness.pool_news(2.0) == [] and harness.monitor.hold_starts(2.0)
    harness.release(leases[0], 3.0)
    harness.lease_manager.grants(3.0)
    assert harness.pool_news(3.0) == [], "a request still waits"
    harness.release(leases[1], 5.0)
    harness.lease_manager.grants(5.0)
    assert harness.pool_news(5.0) == [events.PoolRestored(4.0)]
    assert not harness.monitor.hold_starts(5.0)
    harness.request("LLD-5", 6.0)
    assert harness.pool_news(6.0) == [events.PoolExhausted(waiting=1, slots=2)]


def test_a_pool_with_a_free_key_is_not_exhausted() -> None:
    harness = LeaseHarness(keys(3))
    harness.acquire("LLD-1", 0.0)
    assert harness.pool_news(0.0) == []


def test_if_all_keys_are_limited_the_first_to_recover_is_reported_once() -> None:
    harness = LeaseHarness(keys(2))
    first, second = harness.acquire("LLD-1", 0.0), harness.acquire("LLD-2", 0.0)
    harness.release(first, 0.0, Refusal(RefusalKind.RATE_LIMITED, "429", 50.0))
    harness.release(second, 0.0, Refusal(RefusalKind.RATE_LIMITED, "429", 20.0))
    harness.request("LLD-1", 0.0)
    assert harness.pool_news(0.0) == [events.AllKeysLimited("key-2", 20.0)]
    assert harness.pool_news(1.0) == [] and harness.monitor.hold_starts(1.0)
    assert harness.lease_manager.wake_at(1.0) == 20.0
    harness.lease_manager.grants(20.0)
    assert harness.pool_news(20.0) == [events.KeysAvailable(20.0)]


def test_limited_keys_without_a_waiting_request_are_not_reported() -> None:
    harness = LeaseHarness(keys(2))
    harness.refuse_all(LIMITED, 0.0)
    assert harness.pool_news(0.0) == []


def test_a_pool_with_one_usable_slot_is_reported_as_low_once() -> None:
    harness = LeaseHarness(keys(2))
    harness.release(harness.acquire("LLD-1", 0.0), 0.0, LIMITED)
    assert harness.pool_news(0.0) == [events.PoolLow(1)]
    assert harness.pool_news(1.0) == [] and harness.monitor.hold_starts(1.0)
    assert harness.monitor.wake_at(1.0) == 30.0
    assert not harness.monitor.hold_starts(30.0)


def test_a_cooldown_longer_than_max_wait_stops_the_run_for_quota() -> None:
    harness = LeaseHarness(keys(1), max_wait=20.0)
    harness.refuse_all(LIMITED, 0.0)
    harness.request("LLD-1", 0.0)
    harness.pool_news(0.0)
    found = harness.monitor.stop_reason(0.0)
    assert found is not None and found.exit_code == 75 and "key-1" in found.detail


def test_a_cooldown_within_max_wait_does_not_stop_the_run() -> None:
    harness = LeaseHarness(keys(1), max_wait=30.0)
    harness.refuse_all(LIMITED, 0.0)
    harness.request("LLD-1", 0.0)
    harness.pool_news(0.0)
    assert harness.monitor.stop_reason(0.0) is None


def test_a_long_cooldown_does_not_stop_the_run_while_another_key_serves() -> None:
    harness = LeaseHarness(keys(2), max_wait=20.0)
    harness.release(harness.acquire("LLD-1", 0.0), 0.0, LIMITED)
    harness.acquire("LLD-1", 0.0)
    harness.request("LLD-2", 0.0)
    harness.pool_news(0.0)
    assert harness.monitor.stop_reason(0.0) is None


def test_if_every_key_is_rejected_the_run_stops_with_the_reasons() -> None:
    harness = LeaseHarness(keys(2))
    harness.refuse_all(REJECTED, 0.0)
    found = harness.monitor.stop_reason(0.0)
    assert found is not None and found.exit_code == 4
    assert found.detail == "key-1: 401 unauthorised; key-2: 401 unauthorised"


def test_one_rejected_key_does_not_stop_the_run() -> None:
    harness = LeaseHarness(keys(2))
    assert harness.release(harness.acquire("LLD-1", 0.0), 0.0, REJECTED) == [
        events.KeyQuarantined("key-1", "401 unauthorised")
    ]
    assert harness.monitor.stop_reason(0.0) is None


def test_provider_errors_are_retried_with_backoff_and_start_no_cooldown() -> None:
    harness, now, waits = LeaseHarness(keys(1)), 0.0, []
    harness.request("LLD-1", now)
    for _ in range(4):
        (lease,) = harness.lease_manager.grants(now)
        assert harness.release(lease, now, PROVIDER_ERROR) == []
        assert harness.lease_manager.pool.keys.usable_slots(now) == 1
        harness.request("LLD-1", now)
        waits.append((harness.lease_manager.wake_at(now) or 0.0) - now)
        now += waits[-1]
    assert waits == [1.0, 2.0, 4.0, 8.0]


def test_a_request_in_backoff_is_not_waiting_for_a_key() -> None:
    harness = LeaseHarness(keys(2))
    harness.release(harness.acquire("LLD-1", 0.0), 0.0, PROVIDER_ERROR)
    harness.request("LLD-1", 0.0)
    assert harness.pool_news(0.0) == []


def test_a_failing_provider_opens_the_breaker_until_it_answers() -> None:
    harness = LeaseHarness(keys(5))
    leases = [harness.acquire(f"LLD-{number}", 0.0) for number in range(5)]
    published = [event for lease in leases for event in harness.release(lease, 0.0, PROVIDER_ERROR)]
    assert published == [events.BreakerOpened("gemini", "503", 2.0)]
    assert harness.monitor.hold_starts(60.0)
    assert harness.release(harness.acquire("LLD-9", 2.0), 3.0) == [events.BreakerClosed("gemini", 3.0)]
    assert not harness.monitor.hold_starts(5.0)


def test_a_model_that_a_key_may_not_use_is_not_called_exhausted() -> None:
    harness = LeaseHarness(keys(1))
    harness.release(harness.acquire("LLD-1", 0.0), 0.0, Refusal(RefusalKind.NO_ACCESS, "403 forbidden"))
    (status,) = key_statuses(harness.lease_manager.pool, "key-1", 1.0)
    assert status.state == "not allowed"
    (note,) = [note for note in harness.lease_manager.drain_notes() if isinstance(note, CooldownStarted)]
    other = LeaseHarness(keys(1))
    other.lease_manager.pool.apply_note(replace(note, run="there"))
    (status,) = key_statuses(other.lease_manager.pool, "key-1", 1.0)
    assert status.state == "not allowed", "other runs know it too"


def test_closing_the_breaker_ends_all_backoffs() -> None:
    harness = LeaseHarness(keys(5))
    for lease in [harness.acquire(f"LLD-{number}", 0.0) for number in range(5)]:
        harness.release(lease, 0.0, PROVIDER_ERROR)
    probe = harness.acquire("LLD-9", 2.0)
    harness.request("LLD-1", 2.0)
    harness.release(probe, 2.5)
    assert [lease.request.holder for lease in harness.lease_manager.grants(2.5)] == ["LLD-1"], (
        "not only after 3.0"
    )


def test_a_breaker_open_longer_than_max_wait_stops_the_run() -> None:
    harness = LeaseHarness(keys(5), max_wait=100.0)
    harness.refuse_all(PROVIDER_ERROR, 0.0)
    assert harness.monitor.stop_reason(100.0) is None
    due = harness.monitor.wake_at(50.0)
    found = harness.monitor.stop_reason(due or 0.0)
    assert found is not None and found.exit_code == 75 and found.reason == "provider failing"


@pytest.mark.parametrize("refusal", [LIMITED, REJECTED])
def test_a_probe_refused_for_its_key_does_not_block_the_next_probe(refusal: Refusal) -> None:
    harness = LeaseHarness(keys(5))
    harness.refuse_all(PROVIDER_ERROR, 0.0)
    harness.release(harness.acquire("LLD-9", 2.0), 2.5, refusal)
    assert harness.acquire("LLD-9", 2.5).credential.name != "key-1"


def test_a_refusal_of_a_replaced_secret_does_not_affect_the_new_one() -> None:
    harness = LeaseHarness(keys(1))
    lease = harness.acquire("LLD-1", 0.0)
    changed = [Credential("key-1", "gemini", Secret("a better one"))]
    assert harness.lease_manager.replace_credentials(changed) == [events.KeysChanged(("key-1",), ("key-1",))]
    assert harness.release(lease, 1.0, REJECTED) == []
    assert harness.lease_manager.pool.keys.active() == ["key-1"]


def test_a_refusal_finds_a_renamed_key() -> None:
    harness = LeaseHarness(keys(2))
    _, second = harness.acquire("LLD-1", 0.0), harness.acquire("LLD-2", 0.0)
    moved = Credential("key-1", "gemini", key("key-2").secret)
    assert harness.lease_manager.replace_credentials([moved]) == [events.KeysChanged((), ("key-1",))]
    assert harness.release(second, 1.0, LIMITED) == [
        events.KeyLimited("key-1", 30.0, "429", is_only_key=True)
    ]


def test_the_grant_command_does_not_print_the_secret() -> None:
    command = LeaseHarness(keys(1)).acquire("LLD-1", 0.0).grant_command()
    assert (command.item, command.key, command.lease) == ("LLD-1", "key-1", "lease-1")
    assert command.secret.reveal() == "secret of key-1" and "secret of" not in repr(command)
