"""Parked items: what happens when a person decides."""

from agentos.core.protocol import events
from agentos.core.protocol.commands import StartWorker
from agentos.core.protocol.results import Ending, Outcome, failed_transient
from agentos.core.quota.budget import Limits
from agentos.core.quota.credentials import Credential
from agentos.core.text.secrets import Secret

from .scheduler_harness import SchedulerHarness

KEYS = [Credential("key-1", "gemini", Secret("one")), Credential("key-2", "gemini", Secret("two"))]
PARKED = Outcome(Ending.PARKED, rounds=1)


def starts(harness: SchedulerHarness, item: str) -> int:
    return sum(isinstance(output, StartWorker) and output.item == item for output in harness.outputs)


def test_an_item_resumes_in_the_run_that_parked_it_after_a_decision() -> None:
    harness = SchedulerHarness(KEYS, items=2)
    harness.finish("LLD-1", PARKED)
    assert harness.run.parked() == ["LLD-1"]
    harness.handle(events.ItemDecided("LLD-1", "approve"))
    assert harness.run.parked() == [] and starts(harness, "LLD-1") == 2
    harness.finish("LLD-2")
    over_before = harness.run.over
    harness.finish("LLD-1")
    assert not over_before and harness.run.over and harness.run.exit_code() == 0


def test_a_run_does_not_wait_for_people() -> None:
    harness = SchedulerHarness(KEYS, items=2)
    harness.finish("LLD-1", PARKED)
    harness.finish("LLD-2", PARKED)
    assert harness.run.over and harness.run.exit_code() == 0


def test_a_decision_resumes_only_a_parked_item() -> None:
    harness = SchedulerHarness(KEYS, items=2)
    harness.handle(events.ItemDecided("LLD-1", "approve"))
    harness.finish("LLD-1")
    harness.handle(events.ItemDecided("LLD-1", "approve"))
    assert starts(harness, "LLD-1") == 1


def test_attempts_before_the_decision_do_not_count() -> None:
    harness = SchedulerHarness(KEYS, items=2, limits=Limits(parallel=2, retries=1))
    harness.finish("LLD-1", PARKED)
    harness.handle(events.ItemDecided("LLD-1", "approve"))
    harness.finish("LLD-1", failed_transient("OSError: no space left"))
    (retried,) = [output for output in harness.outputs if isinstance(output, events.ItemRetried)]
    assert (retried.attempt, retried.max_attempts) == (2, 2)
