"""Quarantines, circuit breakers and daily limits are shared by all runs on a host."""

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
from agentos.core.quota.budget import Limits
from agentos.core.quota.credentials import Credential, KeyState
from agentos.core.ratelimit.limits import CallCost, Dimension, Rate, quota_day_start
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.core.ratelimit.windows import UsageWindow

from .builders import key, keys
from .scheduler_harness import SchedulerHarness

MODEL = "gemini-2.5-pro"
REQUEST = {"models": (MODEL,)}
REJECTED = Refusal(RefusalKind.KEY_REJECTED, "401 unauthorised")
PROVIDER_ERROR = Refusal(RefusalKind.PROVIDER_ERROR, "503")


def exchange_notes(here: SchedulerHarness, there: SchedulerHarness) -> None:
    """Pass the notes of one run to the other."""
    there.apply_notes(*(replace(note, run="there") for note in here.notes))
    here.notes.clear()


def rejected(credential: Credential, run: str = "there") -> KeyRejected:
    return KeyRejected(run, credential.fingerprint, "401 there", 999.0)


# Quarantines.


def test_a_key_rejected_in_one_run_is_not_used_in_another() -> None:
    here, there = SchedulerHarness(keys(2)), SchedulerHarness(keys(2))
    lease = here.request("LLD-1", **REQUEST)
    assert lease and lease.key == "key-1"
    here.refuse(lease, REJECTED)
    exchange_notes(here, there)
    assert there.pool.keys.state("key-1", there.now) is KeyState.QUARANTINED
    served = there.request("LLD-1", **REQUEST)
    assert served and served.key == "key-2"
    assert there.pool.keys.quarantined() == {"key-1": "401 unauthorised"}


def test_the_first_call_of_a_key_is_sent_alone_on_the_whole_host() -> None:
    credential = key("key-1", concurrency=9)
    run = SchedulerHarness([credential])
    run.pool.replace([key("another")])
    run.pool.replace([credential])
    run.apply_notes(
        CallStarted(
            "there", "lease-1", credential.fingerprint, credential.quota, MODEL, run.now, CallCost(9, 9)
        )
    )
    assert run.request("LLD-1", **REQUEST) is None
    run.advance_to(run.now + 0.3)
    assert run.held("LLD-1") is not None


def test_editing_the_credentials_or_lifting_it_ends_a_quarantine_from_another_run() -> None:
    first, second = keys(2)
    run = SchedulerHarness([first, second])
    run.apply_notes(rejected(first), rejected(second))
    assert run.run.exit_code() == 4
    for changed in (True, False):
        run = SchedulerHarness([first, second])
        run.apply_notes(rejected(first))
        if changed:
            run.run.change_credentials([first, second], run.now)
        else:
            run.apply_notes(QuarantineLifted("there", first.fingerprint))
        assert run.pool.keys.state("key-1", run.now) is KeyState.AVAILABLE


def test_an_inherited_quarantine_holds_while_there_are_other_keys() -> None:
    first, second = keys(2)
    run = SchedulerHarness([first, second])
    run.apply_notes(rejected(first, EARLIER))
    lease = run.request("LLD-1", **REQUEST)
    assert lease and lease.key == "key-2"
    run.refuse(lease, REJECTED)
    again = run.request("LLD-1", **REQUEST)
    assert again and again.key == "key-1", "no other key is left: it may be valid by now"
    run.refuse(again, REJECTED)
    assert run.run.exit_code() == 4


def test_if_all_quarantines_are_inherited_every_key_is_tried_once_more() -> None:
    run = SchedulerHarness(keys(2))
    run.apply_notes(*(rejected(credential, EARLIER) for credential in keys(2)))
    assert run.pool.keys.active() == ["key-1", "key-2"]


# Circuit breakers.


def open_breaker(run: SchedulerHarness) -> None:
    for number in range(1, 6):
        lease = run.request("LLD-1", call=f"call-{number}", **REQUEST)
        assert lease is not None
        run.refuse(lease, PROVIDER_ERROR)


def test_a_breaker_opened_in_one_run_blocks_the_other_until_it_closes() -> None:
    here, there = SchedulerHarness(keys(4)), SchedulerHarness(keys(4))
    open_breaker(here)
    exchange_notes(here, there)
    assert there.request("LLD-1", **REQUEST) is None
    assert [event.provider for event in there.of(events.BreakerOpened)] == ["gemini"]
    here.now = there.now = 1002.0
    probe = here.request("LLD-1", call="probe", **REQUEST)
    assert probe is not None
    exchange_notes(here, there)
    there.advance_to(1002.5)
    assert there.held("LLD-1") is None, "one probe serves all runs"
    here.answer(probe)
    exchange_notes(here, there)
    assert there.held("LLD-1") is not None
    assert len(there.of(events.BreakerOpened)) == len(there.of(events.BreakerClosed)) == 1


def test_a_failed_probe_extends_the_wait_for_all_runs() -> None:
    here, there = SchedulerHarness(keys(4)), SchedulerHarness(keys(4))
    open_breaker(here)
    exchange_notes(here, there)
    there.request("LLD-1", **REQUEST)
    here.now = there.now = 1002.0
    probe = here.request("LLD-1", call="probe", **REQUEST)
    assert probe is not None
    here.refuse(probe, PROVIDER_ERROR)
    exchange_notes(here, there)
    there.advance_to(1005.9)
    assert there.held("LLD-1") is None
    there.advance_to(1006.0)
    assert there.held("LLD-1") is not None


def test_if_the_probing_run_dies_another_may_probe() -> None:
    here, there = SchedulerHarness(keys(4)), SchedulerHarness(keys(4))
    open_breaker(here)
    here.now = there.now = 1002.0
    assert here.request("LLD-1", call="probe", **REQUEST) is not None
    exchange_notes(here, there)
    assert there.request("LLD-1", **REQUEST) is None
    there.apply_notes(RunGone("there"))
    assert there.held("LLD-1") is not None


def test_failures_of_all_runs_count_together_and_any_answer_resets_them() -> None:
    run = SchedulerHarness(keys(1))
    run.apply_notes(ProviderFailed("there", "gemini", 4, 0.0, "503", 999.0, "gemini-2.5-pro"))
    lease = run.request("LLD-1", **REQUEST)
    assert lease is not None
    run.answer(lease)
    assert ProviderRecovered("", "gemini", "gemini-2.5-pro") in run.notes and not run.pool.open_breakers()
    run.apply_notes(ProviderFailed("there", "gemini", 4, 0.0, "503", 1000.0, "gemini-2.5-pro"))
    again = run.request("LLD-1", **REQUEST)
    assert again is not None
    run.refuse(again, PROVIDER_ERROR)
    assert [found.provider for found in run.pool.open_breakers()] == ["gemini"]


def test_a_breaker_of_another_address_does_not_block_ours() -> None:
    elsewhere = replace(key("key-9"), base_url="http://127.0.0.1:9/v1")
    run = SchedulerHarness(keys(1))
    run.apply_notes(ProviderFailed("there", elsewhere.address, 9, 1060.0, "503", 999.0))
    assert run.request("LLD-1", **REQUEST) is not None
    assert "127.0.0.1" not in elsewhere.address


# Daily limits.


def daily_limited(amount: float, midnight: float | None = None) -> Credential:
    return replace(key("key-1"), rates=((Dimension.DAY, Rate(amount, DAY)),), midnight=midnight)


def used(credential: Credential, *hours: HourUsage) -> BucketUsage:
    return BucketUsage(EARLIER, credential.quota, MODEL, hours, 1000.0)


def test_calls_of_earlier_runs_count_against_the_daily_limit() -> None:
    credential = daily_limited(5)
    run = SchedulerHarness([credential])
    run.apply_notes(used(credential, HourUsage(-9000.0, 1), HourUsage(-2000.0, 3)))
    lease = run.request("LLD-1", **REQUEST)
    assert lease is not None
    run.answer(lease)
    assert run.pool.keys.state("key-1", run.now) is KeyState.EXHAUSTED
    assert [round(event.seconds) for event in run.of(events.KeyExhausted)] == [
        round(-9000 + DAY + 0.15 - 1000)
    ]
    assert any(isinstance(note, CooldownStarted) and note.exhausted_until for note in run.notes)


def test_a_run_that_starts_with_an_exhausted_day_sends_nothing_and_exits_75() -> None:
    credential = daily_limited(4)
    run = SchedulerHarness([credential], limits=Limits(parallel=1, max_wait=3600.0))
    run.apply_notes(used(credential, HourUsage(-2000.0, 4)))
    assert run.request("LLD-1", **REQUEST) is None
    assert [event.reason for event in run.of(events.ShutdownStarted)] == ["quota"]
    run.finish("LLD-1")
    assert run.run.exit_code() == 75


def test_a_daily_limit_is_reset_at_the_providers_midnight() -> None:
    credential = daily_limited(4, midnight=-50000.0)
    run = SchedulerHarness([credential])
    run.apply_notes(used(credential, HourUsage(-50100.0, 4), HourUsage(-2000.0, 4)))
    assert run.pool.keys.state("key-1", run.now) is KeyState.EXHAUSTED
    midnight = DAY - 50000.0
    assert run.pool.keys.next_allowed(run.now) == (midnight, "key-1")
    window = UsageWindow(Rate(4, DAY), None, midnight=-50000.0)
    window.record(4, -50001.0)
    assert window.used(-49999.0) == 0
    window.record(3, -2000.0)
    assert window.next_allowed_at(1, 1000.0) == 1000.0
    assert window.next_allowed_at(2, 1000.0) == midnight == window.next_allowed_at(2, midnight - 1)
    assert window.next_allowed_at(4, midnight) == midnight


def test_a_refused_call_of_another_run_does_not_count_against_the_daily_limit() -> None:
    here, there = SchedulerHarness([daily_limited(2)]), SchedulerHarness([daily_limited(2)])
    lease = here.request("LLD-1", **REQUEST)
    assert lease is not None
    here.refuse(lease, Refusal(RefusalKind.RATE_LIMITED, "429", 1.0))
    exchange_notes(here, there)
    assert there.pool.bucket("key-1", MODEL).limiter.used(Dimension.DAY, 1000.0) == 0


@pytest.mark.parametrize(("provider", "known"), [("gemini", True), ("anthropic", False), ("openai", False)])
def test_only_gemini_has_a_fixed_quota_day(provider: str, known: bool) -> None:
    wall = 1_700_000_000.0
    began = quota_day_start(provider, wall)
    assert (began is not None) == known
    assert began is None or 0 <= wall - began < DAY
