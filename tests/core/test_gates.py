"""A run with parked items: what a decision sets in motion."""

from agentos.core.protocol import events
from agentos.core.protocol.commands import StartWorker
from agentos.core.protocol.results import Ending, Outcome, failed_transient
from agentos.core.quota.budget import Limits
from agentos.core.quota.credentials import Credential
from agentos.core.text.secrets import Secret

from .scheduler_harness import SchedulerHarness

KEYS = [Credential("key-1", "gemini", Secret("one")), Credential("key-2", "gemini", Secret("two"))]
PARKED = Outcome(Ending.PARKED, rounds=1)


def starts(conducted: SchedulerHarness, item: str) -> int:
    return sum(isinstance(told, StartWorker) and told.item == item for told in conducted.outputs)


def test_a_decided_item_goes_on_in_the_run_that_parked_it() -> None:
    conducted = SchedulerHarness(KEYS, items=2)
    conducted.finish("LLD-1", PARKED)
    assert conducted.run.parked() == ["LLD-1"]
    conducted.handle(events.ItemDecided("LLD-1", "approve"))
    assert conducted.run.parked() == [] and starts(conducted, "LLD-1") == 2
    conducted.finish("LLD-2")
    over_before = conducted.run.over
    conducted.finish("LLD-1")
    assert not over_before and conducted.run.over and conducted.run.exit_code() == 0


def test_a_run_does_not_wait_for_people() -> None:
    conducted = SchedulerHarness(KEYS, items=2)
    conducted.finish("LLD-1", PARKED)
    conducted.finish("LLD-2", PARKED)
    assert conducted.run.over and conducted.run.exit_code() == 0


def test_only_a_parked_item_is_moved_by_a_decision() -> None:
    conducted = SchedulerHarness(KEYS, items=2)
    conducted.handle(events.ItemDecided("LLD-1", "approve"))
    conducted.finish("LLD-1")
    conducted.handle(events.ItemDecided("LLD-1", "approve"))
    assert starts(conducted, "LLD-1") == 1


def test_tries_from_before_the_decision_are_not_held_against_the_item() -> None:
    conducted = SchedulerHarness(KEYS, items=2, limits=Limits(parallel=2, retries=1))
    conducted.finish("LLD-1", PARKED)
    conducted.handle(events.ItemDecided("LLD-1", "approve"))
    conducted.finish("LLD-1", failed_transient("OSError: no space left"))
    (retried,) = [told for told in conducted.outputs if isinstance(told, events.ItemRetried)]
    assert (retried.attempt, retried.max_attempts) == (2, 2)
