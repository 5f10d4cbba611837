"""The notes of other runs on this host change the state of our keys."""

from dataclasses import replace

import pytest

from agentos.core.protocol.peer_notes import (
    BucketLimitsLearned,
    CallEnded,
    CallStarted,
    CooldownCleared,
    CooldownStarted,
    Note,
    RunGone,
)
from agentos.core.protocol.results import Usage
from agentos.core.quota.credentials import Credential, KeyState
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.limits import (
    CallCost,
    Counting,
    Dimension,
    LearnedLimit,
    LearnedLimits,
    LimitSeen,
    Rate,
)
from agentos.core.ratelimit.refusals import Refusal, RefusalKind

from .builders import key, keys
from .scheduler_harness import SchedulerHarness

MODEL = "gemini-2.5-pro"
REQUEST = {"models": (MODEL,)}


def call_started(
    credential: Credential, lease: str = "lease-1", run: str = "there", at: float = 1000.0
) -> CallStarted:
    return CallStarted(run, lease, credential.fingerprint, credential.quota, MODEL, at, CallCost(100, 50))


def cooldown_started(
    credential: Credential, until: float, model: str = MODEL, exhausted_until: float = 0.0
) -> CooldownStarted:
    return CooldownStarted("there", credential.quota, model, until, exhausted_until, "429 there", at=1000.0)


# Slots.


@pytest.mark.parametrize("end", [CallEnded("there", "lease-1"), RunGone("there")])
def test_another_runs_call_holds_a_slot_until_it_ends_or_its_run_is_gone(end: Note) -> None:
    run = SchedulerHarness(keys(1))
    run.apply_notes(call_started(keys(1)[0]))
    assert run.request("LLD-1", **REQUEST) is None
    assert run.pool.peer_runs() == {"there"}
    run.apply_notes(end)
    assert run.held("LLD-1") is not None and run.pool.peer_runs() == set()


def test_the_end_of_one_run_frees_no_slot_of_another() -> None:
    credential = key("key-1", concurrency=2)
    run = SchedulerHarness([credential])
    run.apply_notes(
        call_started(credential, run="there", at=900.0), call_started(credential, run="elsewhere", at=901.0)
    )
    run.apply_notes(RunGone("there"))
    assert run.pool.peer_runs() == {"elsewhere"}
    assert run.request("LLD-1", **REQUEST) is not None


def test_notes_about_unknown_calls_or_keys_are_ignored() -> None:
    run = SchedulerHarness(keys(1))
    run.apply_notes(CallEnded("there", "lease-1"), RunGone("there"), call_started(key("not ours")))
    assert run.request("LLD-1", **REQUEST) is not None


def test_a_key_held_by_a_peer_is_polled_while_a_request_waits_for_it() -> None:
    run = SchedulerHarness(keys(1))
    run.apply_notes(call_started(keys(1)[0]))
    run.request("LLD-1", **REQUEST)
    due = run.run.deadline(run.now)
    assert due is not None and due - run.now <= 0.05


def test_a_key_added_while_a_peer_uses_it_is_not_free() -> None:
    first, second = keys(2)
    run = SchedulerHarness([first])
    run.apply_notes(call_started(second))
    run.run.change_credentials([second], run.now)
    assert run.request("LLD-1", **REQUEST) is None


def test_a_key_may_have_different_names_in_different_runs() -> None:
    run = SchedulerHarness([replace(key("key-1"), name="mine")])
    run.apply_notes(call_started(key("key-1")))
    assert run.pool.keys.state("mine", run.now) is KeyState.RESERVED


# Rate limits.


def test_another_runs_calls_count_against_the_rate_limit() -> None:
    credential = replace(key("key-1", concurrency=9), rates=((Dimension.REQUESTS, Rate(2, 60.0)),))
    run = SchedulerHarness([credential])
    run.apply_notes(BucketLimitsLearned("earlier", credential.quota, MODEL, counting=Counting.SLIDING))
    for lease in ("lease-1", "lease-2"):
        run.apply_notes(call_started(credential, lease), CallEnded("there", lease))
    assert run.request("LLD-1", **REQUEST) is None
    run.advance_to(1060.0)
    assert run.held("LLD-1") is None
    run.advance_to(1061.0)
    assert run.held("LLD-1") is not None


def test_another_runs_tokens_are_corrected_by_its_reported_usage() -> None:
    credential = replace(
        key("key-1", concurrency=9),
        rates=((Dimension.REQUESTS, Rate(99, 60.0)), (Dimension.TOKENS, Rate(200, 60.0))),
    )
    run = SchedulerHarness([credential])
    run.apply_notes(call_started(credential))
    assert run.request("LLD-1", input_tokens=100, output_tokens=1, **REQUEST) is None
    run.apply_notes(CallEnded("there", "lease-1", CallCost(40, 10)))
    assert run.held("LLD-1") is not None


# Cooldowns and learned limits.


def test_a_cooldown_of_another_run_holds_here() -> None:
    run = SchedulerHarness(keys(1))
    run.apply_notes(cooldown_started(keys(1)[0], until=1030.0))
    assert run.request("LLD-1", **REQUEST) is None
    assert run.pool.keys.state("key-1", run.now) is KeyState.RATE_LIMITED
    run.advance_to(1030.0)
    assert run.held("LLD-1") is not None


def test_a_cooldown_ends_when_another_run_is_served() -> None:
    run = SchedulerHarness(keys(1))
    run.apply_notes(cooldown_started(keys(1)[0], until=1000.0, exhausted_until=80000.0))
    assert run.request("LLD-1", **REQUEST) is None
    run.apply_notes(CooldownCleared("there", keys(1)[0].quota, MODEL))
    assert run.held("LLD-1") is not None


@pytest.mark.parametrize("model", [MODEL, "*"])
def test_an_answer_to_an_earlier_call_does_not_end_a_peers_cooldown(model: str) -> None:
    run = SchedulerHarness(keys(1))
    lease = run.request("LLD-1", **REQUEST)
    assert lease is not None
    run.now = 1001.0
    run.apply_notes(replace(cooldown_started(keys(1)[0], until=1030.0, model=model), at=1001.0))
    run.answer(lease)
    assert run.request("LLD-1", **REQUEST) is None


def test_an_answer_to_an_earlier_call_clears_no_cooldown_for_peers() -> None:
    run = SchedulerHarness([key("key-1", concurrency=2)], items=2)
    first, second = (run.request(item, **REQUEST) for item in ("LLD-1", "LLD-2"))
    assert first and second
    run.now = 1001.0
    run.refuse(second, Refusal(RefusalKind.RATE_LIMITED, "429", 30.0))
    run.answer(first)
    assert run.request("LLD-1", **REQUEST) is None
    assert not any(isinstance(note, CooldownCleared) for note in run.notes)


def test_a_cooldown_for_one_model_does_not_affect_another() -> None:
    run = SchedulerHarness(keys(1))
    run.apply_notes(cooldown_started(keys(1)[0], until=1030.0, model="gemini-2.5-flash"))
    assert run.request("LLD-1", **REQUEST) is not None


def test_a_manual_cooldown_covers_every_model_used_before_or_not() -> None:
    run = SchedulerHarness(keys(1), items=2)
    lease = run.request("LLD-1", **REQUEST)
    assert lease is not None
    run.answer(lease)
    run.apply_notes(cooldown_started(keys(1)[0], until=1030.0, model="*"))
    assert run.request("LLD-1", **REQUEST) is None
    assert run.request("LLD-2", models=("never asked for",)) is None
    assert run.pool.keys.state("key-1", run.now) is KeyState.RATE_LIMITED
    run.advance_to(1040.0)
    assert run.held("LLD-1") is not None


def test_a_limit_stated_to_another_run_is_kept_here() -> None:
    credential = key("key-1", concurrency=9)
    run = SchedulerHarness([credential], items=3)
    limits = (LimitSeen(Dimension.REQUESTS, 2.0),)
    run.apply_notes(BucketLimitsLearned("there", credential.quota, MODEL, limits))
    granted = [run.request(item, **REQUEST) for item in ("LLD-1", "LLD-2", "LLD-3")]
    assert [lease is not None for lease in granted] == [True, True, False]


def test_a_rate_estimated_by_another_run_is_taken_over() -> None:
    run = SchedulerHarness(keys(1))
    learned = LearnedLimits((LearnedLimit(Dimension.REQUESTS, Counting.SLIDING, 3.0, 1.0),))
    run.apply_notes(BucketLimitsLearned("there", keys(1)[0].quota, MODEL, learned=learned))
    assert run.pool.bucket("key-1", MODEL).limiter.learned == learned


# Notes that we write.


def test_notes_are_written_in_the_order_of_events() -> None:
    run = SchedulerHarness(keys(1))
    lease = run.request("LLD-1", **REQUEST, input_tokens=30, output_tokens=20)
    assert lease is not None
    run.answer(lease, Usage(1, 25, 7))
    again = run.request("LLD-1", **REQUEST)
    assert again is not None
    run.refuse(again, Refusal(RefusalKind.RATE_LIMITED, "429", 30.0))
    fingerprint = keys(1)[0].fingerprint
    assert run.notes[:3] == [
        CallStarted("", "lease-1", fingerprint, fingerprint, MODEL, 1000.0, CallCost(30, 20)),
        CallEnded("", "lease-1", CallCost(25, 7)),
        CallStarted("", "lease-2", fingerprint, fingerprint, MODEL, 1000.0, CallCost(0, 7)),
    ]
    assert CooldownStarted("", fingerprint, MODEL, 1030.0, 0.0, "429", 1000.0) in run.notes


def test_our_notes_put_another_pool_into_the_same_state() -> None:
    ours = SchedulerHarness(keys(2), items=2)
    first, second = (ours.request(item, **REQUEST) for item in ("LLD-1", "LLD-2"))
    assert first and second
    ours.refuse(first, Refusal(RefusalKind.RATE_LIMITED, "429", 30.0))
    theirs = Pool(keys(2))
    for note in ours.notes:
        theirs.apply_note(replace(note, run="here"))
    for now in (1001.0, 1031.0):
        states = [[pool.keys.state(name, now) for name in pool.keys.names()] for pool in (ours.pool, theirs)]
        assert states[0] == states[1]


def test_notes_never_contain_a_secret() -> None:
    run = SchedulerHarness(keys(1))
    run.request("LLD-1", **REQUEST)
    assert "secret of" not in repr(run.notes)
