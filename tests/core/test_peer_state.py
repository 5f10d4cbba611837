"""What other runs on this host do with our keys, as their notes tell it."""

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
from agentos.core.ratelimit.limits import CallCost, Dimension, LimitSeen, Rate
from agentos.core.ratelimit.provider_profile import Counting
from agentos.core.ratelimit.refusals import Refusal, RefusalKind

from .builders import key, keys
from .scheduler_harness import Conducted

MODEL = "gemini-2.5-pro"
ASK = {"models": (MODEL,)}


def sent(
    credential: Credential, lease: str = "lease-1", run: str = "there", at: float = 1000.0
) -> CallStarted:
    return CallStarted(run, lease, credential.fingerprint, credential.quota, MODEL, at, CallCost(100, 50))


def refused(
    credential: Credential, until: float, model: str = MODEL, exhausted_until: float = 0.0
) -> CooldownStarted:
    return CooldownStarted("there", credential.quota, model, until, exhausted_until, "429 there", at=1000.0)


# Slots.


@pytest.mark.parametrize("end", [CallEnded("there", "lease-1"), RunGone("there")])
def test_another_runs_call_holds_a_slot_until_it_is_over_or_its_run_is_gone(end: Note) -> None:
    run = Conducted(keys(1))
    run.learn(sent(keys(1)[0]))
    assert run.want("LLD-1", **ASK) is None
    assert run.pool.peer_runs() == {"there"}
    run.learn(end)
    assert run.held("LLD-1") is not None and run.pool.peer_runs() == set()


def test_the_end_of_one_run_frees_nothing_of_another() -> None:
    credential = key("key-1", concurrency=2)
    run = Conducted([credential])
    run.learn(sent(credential, run="there", at=900.0), sent(credential, run="elsewhere", at=901.0))
    run.learn(RunGone("there"))
    assert run.pool.peer_runs() == {"elsewhere"}
    assert run.want("LLD-1", **ASK) is not None


def test_what_is_told_twice_or_of_a_stranger_changes_nothing() -> None:
    run = Conducted(keys(1))
    run.learn(CallEnded("there", "lease-1"), RunGone("there"), sent(key("not ours")))
    assert run.want("LLD-1", **ASK) is not None


def test_while_a_neighbour_holds_what_somebody_waits_for_it_is_looked_at_again_soon() -> None:
    run = Conducted(keys(1))
    run.learn(sent(keys(1)[0]))
    run.want("LLD-1", **ASK)
    due = run.run.deadline(run.now)
    assert due is not None and due - run.now <= 0.05


def test_a_key_that_is_added_while_a_neighbour_uses_it_is_not_free() -> None:
    first, second = keys(2)
    run = Conducted([first])
    run.learn(sent(second))
    run.run.change_credentials([second], run.now)
    assert run.want("LLD-1", **ASK) is None


def test_a_key_has_one_name_here_and_another_there() -> None:
    run = Conducted([replace(key("key-1"), name="mine")])
    run.learn(sent(key("key-1")))
    assert run.pool.keys.state("mine", run.now) is KeyState.RESERVED


# Rates.


def test_another_runs_calls_count_for_the_rate() -> None:
    credential = replace(key("key-1", concurrency=9), rates=((Dimension.REQUESTS, Rate(2, 60.0)),))
    run = Conducted([credential])
    run.learn(BucketLimitsLearned("earlier", credential.quota, MODEL, counting=Counting.SLIDING))
    for lease in ("lease-1", "lease-2"):
        run.learn(sent(credential, lease), CallEnded("there", lease))
    assert run.want("LLD-1", **ASK) is None
    run.at(1060.0)
    assert run.held("LLD-1") is None
    run.at(1061.0)
    assert run.held("LLD-1") is not None


def test_another_runs_tokens_are_corrected_when_its_answer_has_come() -> None:
    credential = replace(
        key("key-1", concurrency=9),
        rates=((Dimension.REQUESTS, Rate(99, 60.0)), (Dimension.TOKENS, Rate(200, 60.0))),
    )
    run = Conducted([credential])
    run.learn(sent(credential))
    assert run.want("LLD-1", input_tokens=100, output_tokens=1, **ASK) is None
    run.learn(CallEnded("there", "lease-1", CallCost(40, 10)))
    assert run.held("LLD-1") is not None


# Rests and findings.


def test_a_rest_that_another_run_was_told_is_kept_here() -> None:
    run = Conducted(keys(1))
    run.learn(refused(keys(1)[0], until=1030.0))
    assert run.want("LLD-1", **ASK) is None
    assert run.pool.keys.state("key-1", run.now) is KeyState.RATE_LIMITED
    run.at(1030.0)
    assert run.held("LLD-1") is not None


def test_a_rest_ends_when_another_run_was_served() -> None:
    run = Conducted(keys(1))
    run.learn(refused(keys(1)[0], until=1000.0, exhausted_until=80000.0))
    assert run.want("LLD-1", **ASK) is None
    run.learn(CooldownCleared("there", keys(1)[0].quota, MODEL))
    assert run.held("LLD-1") is not None


@pytest.mark.parametrize("model", [MODEL, "*"])
def test_the_answer_to_a_call_that_was_sent_before_ends_no_rest_of_another_run(model: str) -> None:
    run = Conducted(keys(1))
    lease = run.want("LLD-1", **ASK)
    assert lease is not None
    run.now = 1001.0
    run.learn(replace(refused(keys(1)[0], until=1030.0, model=model), at=1001.0))
    run.answer(lease)
    assert run.want("LLD-1", **ASK) is None


def test_the_answer_to_a_call_that_was_sent_before_ends_no_rest_anywhere() -> None:
    run = Conducted([key("key-1", concurrency=2)], items=2)
    first, second = (run.want(item, **ASK) for item in ("LLD-1", "LLD-2"))
    assert first and second
    run.now = 1001.0
    run.refuse(second, Refusal(RefusalKind.RATE_LIMITED, "429", 30.0))
    run.answer(first)
    assert run.want("LLD-1", **ASK) is None
    assert not any(isinstance(note, CooldownCleared) for note in run.notes)


def test_a_rest_for_one_model_is_none_for_another() -> None:
    run = Conducted(keys(1))
    run.learn(refused(keys(1)[0], until=1030.0, model="gemini-2.5-flash"))
    assert run.want("LLD-1", **ASK) is not None


def test_a_key_that_was_put_to_rest_rests_for_every_model_known_or_not() -> None:
    run = Conducted(keys(1), items=2)
    lease = run.want("LLD-1", **ASK)
    assert lease is not None
    run.answer(lease)
    run.learn(refused(keys(1)[0], until=1030.0, model="*"))
    assert run.want("LLD-1", **ASK) is None
    assert run.want("LLD-2", models=("never asked for",)) is None
    assert run.pool.keys.state("key-1", run.now) is KeyState.RATE_LIMITED
    run.at(1040.0)
    assert run.held("LLD-1") is not None


def test_what_another_run_was_told_of_limits_is_kept_to_here() -> None:
    credential = key("key-1", concurrency=9)
    run = Conducted([credential], items=3)
    limits = (LimitSeen(Dimension.REQUESTS, 2.0),)
    run.learn(BucketLimitsLearned("there", credential.quota, MODEL, limits))
    granted = [run.want(item, **ASK) for item in ("LLD-1", "LLD-2", "LLD-3")]
    assert [lease is not None for lease in granted] == [True, True, False]


def test_a_rate_that_another_run_has_found_is_a_beginning_here() -> None:
    run = Conducted(keys(1))
    run.learn(BucketLimitsLearned("there", keys(1)[0].quota, MODEL, requests_per_second=3.0))
    assert run.pool.bucket("key-1", MODEL).limiter.per_second() == 3.0


# What we tell.


def test_what_we_do_is_told_in_the_order_in_which_it_happens() -> None:
    run = Conducted(keys(1))
    lease = run.want("LLD-1", **ASK, input_tokens=30, output_tokens=20)
    assert lease is not None
    run.answer(lease, Usage(1, 25, 7))
    again = run.want("LLD-1", **ASK)
    assert again is not None
    run.refuse(again, Refusal(RefusalKind.RATE_LIMITED, "429", 30.0))
    fingerprint = keys(1)[0].fingerprint
    assert run.notes[:3] == [
        CallStarted("", "lease-1", fingerprint, fingerprint, MODEL, 1000.0, CallCost(30, 20)),
        CallEnded("", "lease-1", CallCost(25, 7)),
        CallStarted("", "lease-2", fingerprint, fingerprint, MODEL, 1000.0, CallCost(0, 7)),
    ]
    assert CooldownStarted("", fingerprint, MODEL, 1030.0, 0.0, "429", 1000.0) in run.notes


def test_what_we_tell_makes_another_pool_see_what_ours_sees() -> None:
    ours = Conducted(keys(2), items=2)
    first, second = (ours.want(item, **ASK) for item in ("LLD-1", "LLD-2"))
    assert first and second
    ours.refuse(first, Refusal(RefusalKind.RATE_LIMITED, "429", 30.0))
    theirs = Pool(keys(2))
    for note in ours.notes:
        theirs.apply_note(replace(note, run="here"))
    for now in (1001.0, 1031.0):
        states = [[pool.keys.state(name, now) for name in pool.keys.names()] for pool in (ours.pool, theirs)]
        assert states[0] == states[1]


def test_notes_never_hold_a_secret() -> None:
    run = Conducted(keys(1))
    run.want("LLD-1", **ASK)
    assert "secret of" not in repr(run.notes)
