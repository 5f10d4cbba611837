"""What refusals and waiting mean for the whole run."""

from dataclasses import replace

import pytest

from agentos.core import events
from agentos.core.credentials import Credential
from agentos.core.episodes import Episodes
from agentos.core.leasing import Leasing, granted
from agentos.core.loads import Dimension, Rate
from agentos.core.money import PriceList, Purse
from agentos.core.pool import Pool
from agentos.core.refusals import Refusal, RefusalKind
from agentos.core.secrets import Secret
from agentos.core.wants import Lease

from .making import key, keys, steady

LIMITED = Refusal(RefusalKind.RATE_LIMITED, "429", 30.0)
TROUBLE = Refusal(RefusalKind.TROUBLE, "503")
REJECTED = Refusal(RefusalKind.KEY_REJECTED, "401 unauthorised")


class Desk:
    """A leasing with workers that ask and give back."""

    def __init__(self, credentials: list[Credential], max_wait: float = 3600.0) -> None:
        pool = Pool(credentials)
        self.leasing = Leasing(pool, steady, Purse(PriceList()))
        self.whole = Episodes(pool, max_wait)

    def ask(self, item: str, now: float, call: str = "call-1") -> None:
        self.leasing.wanted(events.LeaseWanted(item, call, ("gemini",)), now)

    def get(self, item: str, now: float) -> Lease:
        self.ask(item, now)
        (lease,) = self.leasing.grants(now)
        return lease

    def give(self, lease: Lease, now: float, refusal: Refusal | None = None) -> list[events.News]:
        back = events.LeaseReturned(lease.want.holder, lease.id, 1.0, refusal=refusal)
        return self.leasing.returned(back, now)

    def refuse_all(self, refusal: Refusal, now: float) -> None:
        names = [f"LLD-{number}" for number, _ in enumerate(self.leasing.pool.keys.names())]
        for lease in [self.get(name, now) for name in names]:
            self.give(lease, now, refusal)

    def episodes(self, now: float) -> list[events.News]:
        return self.whole.look(now)


def test_a_refused_key_rests_and_the_call_goes_on_with_another_at_once() -> None:
    desk = Desk(keys(2))
    assert desk.give(desk.get("LLD-1", 0.0), 1.0, LIMITED) == [events.KeyLimited("key-1", 30.0, "429")]
    assert desk.get("LLD-1", 1.0).credential.name == "key-2"


def test_a_spent_day_is_told_with_its_end() -> None:
    desk = Desk(keys(1))
    refusal = Refusal(RefusalKind.DAY_EXHAUSTED, "429 PerDay", 36.0, 40000.0)
    assert desk.give(desk.get("LLD-1", 0.0), 0.0, refusal) == [
        events.KeySpent("key-1", 40000.0, "429 PerDay")
    ]
    assert desk.give(desk.get("LLD-1", 3600.0), 3601.0) == [events.KeyRecovered("key-1")]


def paced_desk(max_wait: float = 3600.0) -> Desk:
    """One key, whose first of one call a minute is over."""
    desk = Desk([replace(key("key-1"), rates=((Dimension.REQUESTS, Rate(1.0, 60.0)),))], max_wait)
    desk.leasing.pool.bucket("key-1", "").pace.manners.probe(0.0)
    desk.give(desk.get("LLD-1", 0.0), 1.0)
    desk.ask("LLD-1", 1.0)
    assert desk.leasing.grants(1.0) == []
    return desk


def test_a_long_wait_for_a_limit_is_said_once_with_its_end() -> None:
    desk = paced_desk()
    _, paced = desk.episodes(1.0)
    assert isinstance(paced, events.CallsPaced) and paced.key == "key-1" and 50.0 < paced.seconds < 61.0
    assert desk.episodes(2.0) == desk.episodes(30.0) == [] and desk.whole.standstill(2.0) is None
    (lease,) = desk.leasing.grants(1.0 + paced.seconds)
    assert desk.episodes(1.0 + paced.seconds) == []
    desk.give(lease, 62.0)
    desk.ask("LLD-1", 62.0)
    assert desk.leasing.grants(62.0) == [] and len(desk.episodes(62.0)) == 1


def test_nobody_hears_of_a_short_wait_for_a_limit() -> None:
    desk = paced_desk()
    desk.leasing.grants(57.0)
    assert desk.episodes(57.0) == [events.PoolLow(1)]


def test_a_limit_that_opens_after_max_wait_is_a_standstill() -> None:
    found = paced_desk(max_wait=10.0).whole.standstill(1.0)
    assert found is not None and found.exit_code == 75 and found.seconds is not None and found.seconds > 50.0
    assert found.detail == "no key may be used within --max-wait; the first is key-1"


def test_out_of_turn_no_key_is_given_out_and_it_is_tried_again_soon() -> None:
    desk = Desk(keys(1))
    desk.leasing.in_turn = False
    desk.ask("LLD-1", 0.0)
    assert desk.leasing.grants(0.0) == []
    assert desk.leasing.wake_at(0.0) == pytest.approx(0.02)
    desk.leasing.in_turn = True
    assert [lease.want.holder for lease in desk.leasing.grants(0.02)] == ["LLD-1"]


def test_the_pool_is_exhausted_once_an_episode() -> None:
    desk = Desk(keys(2))
    leases = [desk.get("LLD-1", 0.0), desk.get("LLD-2", 0.0)]
    assert desk.episodes(0.0) == []
    desk.ask("LLD-3", 1.0)
    assert desk.episodes(1.0) == [events.PoolExhausted(waiting=1, slots=2)]
    desk.ask("LLD-4", 2.0)
    assert desk.episodes(2.0) == [] and desk.whole.hold_starts(2.0)
    desk.give(leases[0], 3.0)
    desk.leasing.grants(3.0)
    assert desk.episodes(3.0) == [], "somebody still waits"
    desk.give(leases[1], 5.0)
    desk.leasing.grants(5.0)
    assert desk.episodes(5.0) == [events.PoolRestored(4.0)]
    assert not desk.whole.hold_starts(5.0)
    desk.ask("LLD-5", 6.0)
    assert desk.episodes(6.0) == [events.PoolExhausted(waiting=1, slots=2)]


def test_a_free_key_is_no_exhaustion() -> None:
    desk = Desk(keys(3))
    desk.get("LLD-1", 0.0)
    assert desk.episodes(0.0) == []


def test_when_all_keys_are_limited_the_earliest_is_named_once() -> None:
    desk = Desk(keys(2))
    first, second = desk.get("LLD-1", 0.0), desk.get("LLD-2", 0.0)
    desk.give(first, 0.0, Refusal(RefusalKind.RATE_LIMITED, "429", 50.0))
    desk.give(second, 0.0, Refusal(RefusalKind.RATE_LIMITED, "429", 20.0))
    desk.ask("LLD-1", 0.0)
    assert desk.episodes(0.0) == [events.AllKeysLimited("key-2", 20.0)]
    assert desk.episodes(1.0) == [] and desk.whole.hold_starts(1.0)
    assert desk.leasing.wake_at(1.0) == 20.0
    desk.leasing.grants(20.0)
    assert desk.episodes(20.0) == [events.KeysBack(20.0)]


def test_limited_keys_that_nobody_waits_for_are_no_pause() -> None:
    desk = Desk(keys(2))
    desk.refuse_all(LIMITED, 0.0)
    assert desk.episodes(0.0) == []


def test_one_usable_slot_is_low_and_said_once() -> None:
    desk = Desk(keys(2))
    desk.give(desk.get("LLD-1", 0.0), 0.0, LIMITED)
    assert desk.episodes(0.0) == [events.PoolLow(1)]
    assert desk.episodes(1.0) == [] and desk.whole.hold_starts(1.0)
    assert desk.whole.wake_at(1.0) == 30.0
    assert not desk.whole.hold_starts(30.0)


def test_a_rest_longer_than_max_wait_is_a_standstill_for_quota() -> None:
    desk = Desk(keys(1), max_wait=20.0)
    desk.refuse_all(LIMITED, 0.0)
    desk.ask("LLD-1", 0.0)
    desk.episodes(0.0)
    found = desk.whole.standstill(0.0)
    assert found is not None and found.exit_code == 75 and "key-1" in found.detail


def test_a_rest_within_max_wait_is_waited_for() -> None:
    desk = Desk(keys(1), max_wait=30.0)
    desk.refuse_all(LIMITED, 0.0)
    desk.ask("LLD-1", 0.0)
    desk.episodes(0.0)
    assert desk.whole.standstill(0.0) is None


def test_a_long_rest_of_one_key_is_no_standstill_while_another_serves() -> None:
    desk = Desk(keys(2), max_wait=20.0)
    desk.give(desk.get("LLD-1", 0.0), 0.0, LIMITED)
    desk.get("LLD-1", 0.0)
    desk.ask("LLD-2", 0.0)
    desk.episodes(0.0)
    assert desk.whole.standstill(0.0) is None


def test_when_every_key_is_rejected_the_run_stands_still_with_the_reasons() -> None:
    desk = Desk(keys(2))
    desk.refuse_all(REJECTED, 0.0)
    found = desk.whole.standstill(0.0)
    assert found is not None and found.exit_code == 4
    assert found.detail == "key-1: 401 unauthorised; key-2: 401 unauthorised"


def test_one_rejected_key_is_no_standstill() -> None:
    desk = Desk(keys(2))
    assert desk.give(desk.get("LLD-1", 0.0), 0.0, REJECTED) == [
        events.KeyQuarantined("key-1", "401 unauthorised")
    ]
    assert desk.whole.standstill(0.0) is None


def test_trouble_is_tried_again_with_growing_waits_and_rests_no_key() -> None:
    desk, now, waits = Desk(keys(1)), 0.0, []
    desk.ask("LLD-1", now)
    for _ in range(4):
        (lease,) = desk.leasing.grants(now)
        assert desk.give(lease, now, TROUBLE) == []
        assert desk.leasing.pool.keys.usable_slots(now) == 1
        desk.ask("LLD-1", now)
        waits.append((desk.leasing.wake_at(now) or 0.0) - now)
        now += waits[-1]
    assert waits == [1.0, 2.0, 4.0, 8.0]


def test_waiting_out_a_trouble_is_not_waiting_for_a_key() -> None:
    desk = Desk(keys(2))
    desk.give(desk.get("LLD-1", 0.0), 0.0, TROUBLE)
    desk.ask("LLD-1", 0.0)
    assert desk.episodes(0.0) == []


def test_a_provider_that_fails_for_all_is_a_storm_that_ends_with_an_answer() -> None:
    desk = Desk(keys(5))
    leases = [desk.get(f"LLD-{number}", 0.0) for number in range(5)]
    news = [told for lease in leases for told in desk.give(lease, 0.0, TROUBLE)]
    assert news == [events.StormBegan("gemini", "503", 2.0)]
    assert desk.whole.hold_starts(60.0)
    assert desk.give(desk.get("LLD-9", 2.0), 3.0) == [events.StormEnded("gemini", 3.0)]
    assert not desk.whole.hold_starts(5.0)


def test_when_a_storm_is_over_nobody_waits_out_his_back_off() -> None:
    desk = Desk(keys(5))
    for lease in [desk.get(f"LLD-{number}", 0.0) for number in range(5)]:
        desk.give(lease, 0.0, TROUBLE)
    look = desk.get("LLD-9", 2.0)
    desk.ask("LLD-1", 2.0)
    desk.give(look, 2.5)
    assert [lease.want.holder for lease in desk.leasing.grants(2.5)] == ["LLD-1"], "not only after 3.0"


def test_a_storm_longer_than_max_wait_is_a_standstill() -> None:
    desk = Desk(keys(5), max_wait=100.0)
    desk.refuse_all(TROUBLE, 0.0)
    assert desk.whole.standstill(100.0) is None
    due = desk.whole.wake_at(50.0)
    found = desk.whole.standstill(due or 0.0)
    assert found is not None and found.exit_code == 75 and found.reason == "provider failing"


@pytest.mark.parametrize("refusal", [LIMITED, REJECTED])
def test_a_probe_that_is_refused_for_its_key_does_not_keep_the_storm_closed(refusal: Refusal) -> None:
    desk = Desk(keys(5))
    desk.refuse_all(TROUBLE, 0.0)
    desk.give(desk.get("LLD-9", 2.0), 2.5, refusal)
    assert desk.get("LLD-9", 2.5).credential.name != "key-1"


def test_a_refusal_of_a_secret_that_was_replaced_says_nothing_of_the_new_one() -> None:
    desk = Desk(keys(1))
    lease = desk.get("LLD-1", 0.0)
    changed = [Credential("key-1", "gemini", Secret("a better one"))]
    assert desk.leasing.replaced(changed) == [events.KeysChanged(("key-1",), ("key-1",))]
    assert desk.give(lease, 1.0, REJECTED) == []
    assert desk.leasing.pool.keys.living() == ["key-1"]


def test_a_refusal_finds_its_key_under_its_new_name() -> None:
    desk = Desk(keys(2))
    _, second = desk.get("LLD-1", 0.0), desk.get("LLD-2", 0.0)
    moved = Credential("key-1", "gemini", key("key-2").secret)
    assert desk.leasing.replaced([moved]) == [events.KeysChanged((), ("key-1",))]
    assert desk.give(second, 1.0, LIMITED) == [events.KeyLimited("key-1", 30.0, "429")]


def test_the_order_that_carries_the_key_does_not_show_it() -> None:
    order = granted(Desk(keys(1)).get("LLD-1", 0.0))
    assert (order.item, order.key, order.lease) == ("LLD-1", "key-1", "lease-1")
    assert order.secret.reveal() == "secret of key-1" and "secret of" not in repr(order)
