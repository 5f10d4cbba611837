"""What refusals and waiting mean for the whole run."""

from dataclasses import replace

import pytest

from agentos.core.protocol import events
from agentos.core.quota.budget import Budget, PriceList
from agentos.core.quota.credentials import Credential
from agentos.core.quota.lease import Lease
from agentos.core.quota.lease_manager import LeaseManager
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.limits import Dimension, Rate
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.core.scheduling.pool_monitor import PoolMonitor
from agentos.core.text.secrets import Secret

from .builders import key, keys, steady

LIMITED = Refusal(RefusalKind.RATE_LIMITED, "429", 30.0)
TROUBLE = Refusal(RefusalKind.PROVIDER_ERROR, "503")
REJECTED = Refusal(RefusalKind.KEY_REJECTED, "401 unauthorised")


class Desk:
    """A leasing with workers that ask and give back."""

    def __init__(self, credentials: list[Credential], max_wait: float = 3600.0) -> None:
        pool = Pool(credentials)
        self.leasing = LeaseManager(pool, steady, Budget(PriceList()))
        self.whole = PoolMonitor(pool, max_wait)

    def ask(self, item: str, now: float, call: str = "call-1") -> None:
        self.leasing.request(events.LeaseRequested(item, call, ("gemini",)), now)

    def get(self, item: str, now: float) -> Lease:
        self.ask(item, now)
        (lease,) = self.leasing.grants(now)
        return lease

    def give(self, lease: Lease, now: float, refusal: Refusal | None = None) -> list[events.News]:
        back = events.LeaseReleased(lease.request.holder, lease.id, 1.0, refusal=refusal)
        return self.leasing.release(back, now)

    def refuse_all(self, refusal: Refusal, now: float) -> None:
        names = [f"LLD-{number}" for number, _ in enumerate(self.leasing.pool.keys.names())]
        for lease in [self.get(name, now) for name in names]:
            self.give(lease, now, refusal)

    def episodes(self, now: float) -> list[events.News]:
        return self.whole.update(now)


def test_a_refused_key_rests_and_the_call_goes_on_with_another_at_once() -> None:
    context = Desk(keys(2))
    assert context.give(context.get("LLD-1", 0.0), 1.0, LIMITED) == [events.KeyLimited("key-1", 30.0, "429")]
    assert context.get("LLD-1", 1.0).credential.name == "key-2"


def test_a_spent_day_is_told_with_its_end() -> None:
    context = Desk(keys(1))
    refusal = Refusal(RefusalKind.DAY_EXHAUSTED, "429 PerDay", 36.0, 40000.0)
    assert context.give(context.get("LLD-1", 0.0), 0.0, refusal) == [
        events.KeyExhausted("key-1", 40000.0, "429 PerDay")
    ]
    assert context.give(context.get("LLD-1", 3600.0), 3601.0) == [events.KeyRecovered("key-1")]


def paced_desk(max_wait: float = 3600.0) -> Desk:
    """One key, whose first of one call a minute is over."""
    context = Desk([replace(key("key-1"), rates=((Dimension.REQUESTS, Rate(1.0, 60.0)),))], max_wait)
    context.leasing.pool.bucket("key-1", "").limiter.profile.start_probe(0.0)
    context.give(context.get("LLD-1", 0.0), 1.0)
    context.ask("LLD-1", 1.0)
    assert context.leasing.grants(1.0) == []
    return context


def test_a_long_wait_for_a_limit_is_said_once_with_its_end() -> None:
    context = paced_desk()
    _, paced = context.episodes(1.0)
    assert isinstance(paced, events.CallsThrottled) and paced.key == "key-1" and 50.0 < paced.seconds < 61.0
    assert context.episodes(2.0) == context.episodes(30.0) == [] and context.whole.stop_reason(2.0) is None
    (lease,) = context.leasing.grants(1.0 + paced.seconds)
    assert context.episodes(1.0 + paced.seconds) == []
    context.give(lease, 62.0)
    context.ask("LLD-1", 62.0)
    assert context.leasing.grants(62.0) == [] and len(context.episodes(62.0)) == 1


def test_nobody_hears_of_a_short_wait_for_a_limit() -> None:
    context = paced_desk()
    context.leasing.grants(57.0)
    assert context.episodes(57.0) == [events.PoolLow(1)]


def test_a_limit_that_opens_after_max_wait_is_a_standstill() -> None:
    found = paced_desk(max_wait=10.0).whole.stop_reason(1.0)
    assert found is not None and found.exit_code == 75 and found.seconds is not None and found.seconds > 50.0
    assert found.detail == "no key may be used within --max-wait; the first is key-1"


def test_out_of_turn_no_key_is_given_out_and_it_is_tried_again_soon() -> None:
    context = Desk(keys(1))
    context.leasing.holds_shared_lock = False
    context.ask("LLD-1", 0.0)
    assert context.leasing.grants(0.0) == []
    assert context.leasing.wake_at(0.0) == pytest.approx(0.02)
    context.leasing.holds_shared_lock = True
    assert [lease.request.holder for lease in context.leasing.grants(0.02)] == ["LLD-1"]


def test_the_pool_is_exhausted_once_an_episode() -> None:
    context = Desk(keys(2))
    leases = [context.get("LLD-1", 0.0), context.get("LLD-2", 0.0)]
    assert context.episodes(0.0) == []
    context.ask("LLD-3", 1.0)
    assert context.episodes(1.0) == [events.PoolExhausted(waiting=1, slots=2)]
    context.ask("LLD-4", 2.0)
    assert context.episodes(2.0) == [] and context.whole.hold_starts(2.0)
    context.give(leases[0], 3.0)
    context.leasing.grants(3.0)
    assert context.episodes(3.0) == [], "somebody still waits"
    context.give(leases[1], 5.0)
    context.leasing.grants(5.0)
    assert context.episodes(5.0) == [events.PoolRestored(4.0)]
    assert not context.whole.hold_starts(5.0)
    context.ask("LLD-5", 6.0)
    assert context.episodes(6.0) == [events.PoolExhausted(waiting=1, slots=2)]


def test_a_free_key_is_no_exhaustion() -> None:
    context = Desk(keys(3))
    context.get("LLD-1", 0.0)
    assert context.episodes(0.0) == []


def test_when_all_keys_are_limited_the_earliest_is_named_once() -> None:
    context = Desk(keys(2))
    first, second = context.get("LLD-1", 0.0), context.get("LLD-2", 0.0)
    context.give(first, 0.0, Refusal(RefusalKind.RATE_LIMITED, "429", 50.0))
    context.give(second, 0.0, Refusal(RefusalKind.RATE_LIMITED, "429", 20.0))
    context.ask("LLD-1", 0.0)
    assert context.episodes(0.0) == [events.AllKeysLimited("key-2", 20.0)]
    assert context.episodes(1.0) == [] and context.whole.hold_starts(1.0)
    assert context.leasing.wake_at(1.0) == 20.0
    context.leasing.grants(20.0)
    assert context.episodes(20.0) == [events.KeysAvailable(20.0)]


def test_limited_keys_that_nobody_waits_for_are_no_pause() -> None:
    context = Desk(keys(2))
    context.refuse_all(LIMITED, 0.0)
    assert context.episodes(0.0) == []


def test_one_usable_slot_is_low_and_said_once() -> None:
    context = Desk(keys(2))
    context.give(context.get("LLD-1", 0.0), 0.0, LIMITED)
    assert context.episodes(0.0) == [events.PoolLow(1)]
    assert context.episodes(1.0) == [] and context.whole.hold_starts(1.0)
    assert context.whole.wake_at(1.0) == 30.0
    assert not context.whole.hold_starts(30.0)


def test_a_rest_longer_than_max_wait_is_a_standstill_for_quota() -> None:
    context = Desk(keys(1), max_wait=20.0)
    context.refuse_all(LIMITED, 0.0)
    context.ask("LLD-1", 0.0)
    context.episodes(0.0)
    found = context.whole.stop_reason(0.0)
    assert found is not None and found.exit_code == 75 and "key-1" in found.detail


def test_a_rest_within_max_wait_is_waited_for() -> None:
    context = Desk(keys(1), max_wait=30.0)
    context.refuse_all(LIMITED, 0.0)
    context.ask("LLD-1", 0.0)
    context.episodes(0.0)
    assert context.whole.stop_reason(0.0) is None


def test_a_long_rest_of_one_key_is_no_standstill_while_another_serves() -> None:
    context = Desk(keys(2), max_wait=20.0)
    context.give(context.get("LLD-1", 0.0), 0.0, LIMITED)
    context.get("LLD-1", 0.0)
    context.ask("LLD-2", 0.0)
    context.episodes(0.0)
    assert context.whole.stop_reason(0.0) is None


def test_when_every_key_is_rejected_the_run_stands_still_with_the_reasons() -> None:
    context = Desk(keys(2))
    context.refuse_all(REJECTED, 0.0)
    found = context.whole.stop_reason(0.0)
    assert found is not None and found.exit_code == 4
    assert found.detail == "key-1: 401 unauthorised; key-2: 401 unauthorised"


def test_one_rejected_key_is_no_standstill() -> None:
    context = Desk(keys(2))
    assert context.give(context.get("LLD-1", 0.0), 0.0, REJECTED) == [
        events.KeyQuarantined("key-1", "401 unauthorised")
    ]
    assert context.whole.stop_reason(0.0) is None


def test_trouble_is_tried_again_with_growing_waits_and_rests_no_key() -> None:
    context, now, waits = Desk(keys(1)), 0.0, []
    context.ask("LLD-1", now)
    for _ in range(4):
        (lease,) = context.leasing.grants(now)
        assert context.give(lease, now, TROUBLE) == []
        assert context.leasing.pool.keys.usable_slots(now) == 1
        context.ask("LLD-1", now)
        waits.append((context.leasing.wake_at(now) or 0.0) - now)
        now += waits[-1]
    assert waits == [1.0, 2.0, 4.0, 8.0]


def test_waiting_out_a_trouble_is_not_waiting_for_a_key() -> None:
    context = Desk(keys(2))
    context.give(context.get("LLD-1", 0.0), 0.0, TROUBLE)
    context.ask("LLD-1", 0.0)
    assert context.episodes(0.0) == []


def test_a_provider_that_fails_for_all_is_a_storm_that_ends_with_an_answer() -> None:
    context = Desk(keys(5))
    leases = [context.get(f"LLD-{number}", 0.0) for number in range(5)]
    news = [told for lease in leases for told in context.give(lease, 0.0, TROUBLE)]
    assert news == [events.BreakerOpened("gemini", "503", 2.0)]
    assert context.whole.hold_starts(60.0)
    assert context.give(context.get("LLD-9", 2.0), 3.0) == [events.BreakerClosed("gemini", 3.0)]
    assert not context.whole.hold_starts(5.0)


def test_when_a_storm_is_over_nobody_waits_out_his_back_off() -> None:
    context = Desk(keys(5))
    for lease in [context.get(f"LLD-{number}", 0.0) for number in range(5)]:
        context.give(lease, 0.0, TROUBLE)
    look = context.get("LLD-9", 2.0)
    context.ask("LLD-1", 2.0)
    context.give(look, 2.5)
    assert [lease.request.holder for lease in context.leasing.grants(2.5)] == ["LLD-1"], "not only after 3.0"


def test_a_storm_longer_than_max_wait_is_a_standstill() -> None:
    context = Desk(keys(5), max_wait=100.0)
    context.refuse_all(TROUBLE, 0.0)
    assert context.whole.stop_reason(100.0) is None
    due = context.whole.wake_at(50.0)
    found = context.whole.stop_reason(due or 0.0)
    assert found is not None and found.exit_code == 75 and found.reason == "provider failing"


@pytest.mark.parametrize("refusal", [LIMITED, REJECTED])
def test_a_probe_that_is_refused_for_its_key_does_not_keep_the_storm_closed(refusal: Refusal) -> None:
    context = Desk(keys(5))
    context.refuse_all(TROUBLE, 0.0)
    context.give(context.get("LLD-9", 2.0), 2.5, refusal)
    assert context.get("LLD-9", 2.5).credential.name != "key-1"


def test_a_refusal_of_a_secret_that_was_replaced_says_nothing_of_the_new_one() -> None:
    context = Desk(keys(1))
    lease = context.get("LLD-1", 0.0)
    changed = [Credential("key-1", "gemini", Secret("a better one"))]
    assert context.leasing.replace_credentials(changed) == [events.KeysChanged(("key-1",), ("key-1",))]
    assert context.give(lease, 1.0, REJECTED) == []
    assert context.leasing.pool.keys.active() == ["key-1"]


def test_a_refusal_finds_its_key_under_its_new_name() -> None:
    context = Desk(keys(2))
    _, second = context.get("LLD-1", 0.0), context.get("LLD-2", 0.0)
    moved = Credential("key-1", "gemini", key("key-2").secret)
    assert context.leasing.replace_credentials([moved]) == [events.KeysChanged((), ("key-1",))]
    assert context.give(second, 1.0, LIMITED) == [events.KeyLimited("key-1", 30.0, "429")]


def test_the_order_that_carries_the_key_does_not_show_it() -> None:
    order = Desk(keys(1)).get("LLD-1", 0.0).grant_command()
    assert (order.item, order.key, order.lease) == ("LLD-1", "key-1", "lease-1")
    assert order.secret.reveal() == "secret of key-1" and "secret of" not in repr(order)
