"""Dead keys, storms and days: what one run on a host has met, the others need not meet."""

from dataclasses import replace

import pytest

from agentos.core.constants import DAY
from agentos.core.protocol import events
from agentos.core.protocol.peer_notes import (
    EARLIER,
    BucketUsage,
    CallStarted,
    CooldownStarted,
    HourUsage,
    KeyRejected,
    ProviderFailed,
    ProviderRecovered,
    QuarantineLifted,
    RunGone,
)
from agentos.core.quota.credentials import Credential, KeyState
from agentos.core.ratelimit.limits import CallCost, Dimension, Rate, quota_day_start
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.core.ratelimit.windows import UsageWindow
from agentos.core.scheduling.run_limits import Limits

from .builders import key, keys
from .scheduler_harness import Conducted

MODEL = "gemini-2.5-pro"
ASK = {"models": (MODEL,)}
REJECTED = Refusal(RefusalKind.KEY_REJECTED, "401 unauthorised")
TROUBLE = Refusal(RefusalKind.PROVIDER_ERROR, "503")


def tell(here: Conducted, there: Conducted) -> None:
    """All that one run has to say, to the other."""
    there.learn(*(replace(note, run="there") for note in here.notes))
    here.notes.clear()


def rejected(credential: Credential, run: str = "there") -> KeyRejected:
    return KeyRejected(run, credential.fingerprint, "401 there", 999.0)


# Dead keys.


def test_a_key_that_was_rejected_in_one_run_is_not_tried_in_another() -> None:
    here, there = Conducted(keys(2)), Conducted(keys(2))
    lease = here.want("LLD-1", **ASK)
    assert lease and lease.key == "key-1"
    here.refuse(lease, REJECTED)
    tell(here, there)
    assert there.pool.keys.state("key-1", there.now) is KeyState.QUARANTINED
    served = there.want("LLD-1", **ASK)
    assert served and served.key == "key-2"
    assert there.pool.keys.quarantined() == {"key-1": "401 unauthorised"}


def test_the_first_call_of_a_key_goes_alone_on_the_whole_host() -> None:
    credential = key("key-1", concurrency=9)
    run = Conducted([credential])
    run.pool.replace([key("another")])
    run.pool.replace([credential])
    run.learn(
        CallStarted(
            "there", "lease-1", credential.fingerprint, credential.quota, MODEL, run.now, CallCost(9, 9)
        )
    )
    assert run.want("LLD-1", **ASK) is None
    run.at(run.now + 0.3)
    assert run.held("LLD-1") is not None


def test_a_change_of_the_credentials_or_a_persons_word_ends_what_another_run_said() -> None:
    first, second = keys(2)
    run = Conducted([first, second])
    run.learn(rejected(first), rejected(second))
    assert run.run.exit_code() == 4
    for changed in (True, False):
        run = Conducted([first, second])
        run.learn(rejected(first))
        if changed:
            run.run.change_credentials([first, second], run.now)
        else:
            run.learn(QuarantineLifted("there", first.fingerprint))
        assert run.pool.keys.state("key-1", run.now) is KeyState.AVAILABLE


def test_what_an_earlier_run_said_is_believed_while_there_are_other_keys() -> None:
    first, second = keys(2)
    run = Conducted([first, second])
    run.learn(rejected(first, EARLIER))
    lease = run.want("LLD-1", **ASK)
    assert lease and lease.key == "key-2"
    run.refuse(lease, REJECTED)
    again = run.want("LLD-1", **ASK)
    assert again and again.key == "key-1", "nothing else is left: it may be a good one by now"
    run.refuse(again, REJECTED)
    assert run.run.exit_code() == 4


def test_when_earlier_runs_had_every_key_rejected_each_is_tried_once_more() -> None:
    run = Conducted(keys(2))
    run.learn(*(rejected(one, EARLIER) for one in keys(2)))
    assert run.pool.keys.active() == ["key-1", "key-2"]


# Storms.


def stormy(run: Conducted) -> None:
    for number in range(1, 6):
        lease = run.want("LLD-1", call=f"call-{number}", **ASK)
        assert lease is not None
        run.refuse(lease, TROUBLE)


def test_a_storm_that_one_run_has_met_holds_the_other_back_and_its_end_frees_it() -> None:
    here, there = Conducted(keys(4)), Conducted(keys(4))
    stormy(here)
    tell(here, there)
    assert there.want("LLD-1", **ASK) is None
    assert [told.provider for told in there.of(events.BreakerOpened)] == ["gemini"]
    here.now = there.now = 1002.0
    probe = here.want("LLD-1", call="probe", **ASK)
    assert probe is not None
    tell(here, there)
    there.at(1002.5)
    assert there.held("LLD-1") is None, "one call looks for all"
    here.answer(probe)
    tell(here, there)
    assert there.held("LLD-1") is not None
    assert len(there.of(events.BreakerOpened)) == len(there.of(events.BreakerClosed)) == 1


def test_a_look_in_vain_makes_the_wait_longer_for_all() -> None:
    here, there = Conducted(keys(4)), Conducted(keys(4))
    stormy(here)
    tell(here, there)
    there.want("LLD-1", **ASK)
    here.now = there.now = 1002.0
    probe = here.want("LLD-1", call="probe", **ASK)
    assert probe is not None
    here.refuse(probe, TROUBLE)
    tell(here, there)
    there.at(1005.9)
    assert there.held("LLD-1") is None
    there.at(1006.0)
    assert there.held("LLD-1") is not None


def test_when_the_run_that_looks_dies_the_next_may_look() -> None:
    here, there = Conducted(keys(4)), Conducted(keys(4))
    stormy(here)
    here.now = there.now = 1002.0
    assert here.want("LLD-1", call="probe", **ASK) is not None
    tell(here, there)
    assert there.want("LLD-1", **ASK) is None
    there.learn(RunGone("there"))
    assert there.held("LLD-1") is not None


def test_failures_are_counted_for_all_and_an_answer_to_any_begins_anew() -> None:
    run = Conducted(keys(1))
    run.learn(ProviderFailed("there", "gemini", 4, 0.0, "503", 999.0))
    lease = run.want("LLD-1", **ASK)
    assert lease is not None
    run.answer(lease)
    assert ProviderRecovered("", "gemini") in run.notes and not run.pool.open_breakers()
    run.learn(ProviderFailed("there", "gemini", 4, 0.0, "503", 1000.0))
    again = run.want("LLD-1", **ASK)
    assert again is not None
    run.refuse(again, TROUBLE)
    assert [name for name, _ in run.pool.open_breakers()] == ["gemini"]


def test_a_storm_behind_another_address_is_none_of_ours() -> None:
    elsewhere = replace(key("key-9"), base_url="http://127.0.0.1:9/v1")
    run = Conducted(keys(1))
    run.learn(ProviderFailed("there", elsewhere.address, 9, 1060.0, "503", 999.0))
    assert run.want("LLD-1", **ASK) is not None
    assert "127.0.0.1" not in elsewhere.address


# Days.


def daily(amount: float, midnight: float | None = None) -> Credential:
    return replace(key("key-1"), rates=((Dimension.DAY, Rate(amount, DAY)),), midnight=midnight)


def used(credential: Credential, *hours: HourUsage) -> BucketUsage:
    return BucketUsage(EARLIER, credential.quota, MODEL, hours, 1000.0)


def test_what_earlier_runs_have_sent_counts_for_the_day() -> None:
    credential = daily(5)
    run = Conducted([credential])
    run.learn(used(credential, HourUsage(-9000.0, 1), HourUsage(-2000.0, 3)))
    lease = run.want("LLD-1", **ASK)
    assert lease is not None
    run.answer(lease)
    assert run.pool.keys.state("key-1", run.now) is KeyState.EXHAUSTED
    assert [round(told.seconds) for told in run.of(events.KeyExhausted)] == [round(-9000 + DAY + 0.15 - 1000)]
    assert any(isinstance(note, CooldownStarted) and note.exhausted_until for note in run.notes)


def test_a_run_that_begins_with_a_day_used_up_sends_nothing_and_says_when_to_come_back() -> None:
    credential = daily(4)
    run = Conducted([credential], limits=Limits(parallel=1, max_wait=3600.0))
    run.learn(used(credential, HourUsage(-2000.0, 4)))
    assert run.want("LLD-1", **ASK) is None
    assert [told.reason for told in run.of(events.ShutdownStarted)] == ["quota"]
    run.finish("LLD-1")
    assert run.run.exit_code() == 75


def test_a_day_of_the_providers_ends_at_its_midnight() -> None:
    credential = daily(4, midnight=-50000.0)
    run = Conducted([credential])
    run.learn(used(credential, HourUsage(-50100.0, 4), HourUsage(-2000.0, 4)))
    assert run.pool.keys.state("key-1", run.now) is KeyState.EXHAUSTED
    midnight = DAY - 50000.0
    assert run.pool.keys.next_allowed(run.now) == (midnight, "key-1")
    meter = UsageWindow(Rate(4, DAY), None, midnight=-50000.0)
    meter.record(4, -50001.0)
    assert meter.used(-49999.0) == 0
    meter.record(3, -2000.0)
    assert meter.next_allowed_at(1, 1000.0) == 1000.0
    assert meter.next_allowed_at(2, 1000.0) == midnight == meter.next_allowed_at(2, midnight - 1)
    assert meter.next_allowed_at(4, midnight) == midnight


def test_a_refused_call_of_another_run_does_not_count_for_the_day() -> None:
    here, there = Conducted([daily(2)]), Conducted([daily(2)])
    lease = here.want("LLD-1", **ASK)
    assert lease is not None
    here.refuse(lease, Refusal(RefusalKind.RATE_LIMITED, "429", 1.0))
    tell(here, there)
    assert there.pool.bucket("key-1", MODEL).limiter.used(Dimension.DAY, 1000.0) == 0


@pytest.mark.parametrize(("provider", "known"), [("gemini", True), ("anthropic", False), ("openai", False)])
def test_whose_day_is_known(provider: str, known: bool) -> None:
    wall = 1_700_000_000.0
    began = quota_day_start(provider, wall)
    assert (began is not None) == known
    assert began is None or 0 <= wall - began < DAY
