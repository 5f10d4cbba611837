"""What other runs have done with the items of a run."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentos.core.protocol import events
from agentos.core.protocol.codec import EventEncoder
from agentos.core.protocol.results import Ending, Outcome, Usage, Verdict, failed
from agentos.storage.journal import Journal
from agentos.storage.locks import Holder
from agentos.storage.other_runs import OtherRuns
from agentos.storage.runs import RunFolder, new_run

BEGAN = 1000.0
APPROVED = Outcome(Ending.FINISHED, Verdict.APPROVED, 1)


def ended(outcome: Outcome) -> events.ItemEnded:
    return events.ItemEnded("LLD-1", outcome, 1.0, Usage(), 1)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[RunFolder]:
    run = new_run(tmp_path, BEGAN)
    yield run
    run.close()


def write(run: RunFolder, at: float, *written: events.Event) -> None:
    journal = Journal(run.path, EventEncoder(str), print)
    for event in written:
        journal.on_event(event, at)
    journal.close()


def other_runs(run: RunFolder) -> tuple[OtherRuns, Holder]:
    return OtherRuns(run.path.parent, BEGAN), Holder(1, run.id)


def test_what_another_run_ended_since_this_one_began_is_left_to_it(other: RunFolder) -> None:
    found, holder = other_runs(other)
    write(other, BEGAN - 1, ended(APPROVED))
    assert found.outcome("LLD-1", holder) is None and not found.have_worked_on("LLD-1", holder)
    write(other, BEGAN + 1, ended(APPROVED))
    outcome = found.outcome("LLD-1", holder)
    assert outcome and (outcome.ending, outcome.verdict) == (Ending.FINISHED_BY_OTHER_RUN, Verdict.APPROVED)
    assert found.have_worked_on("LLD-1", holder)
    write(other, BEGAN + 2, ended(Outcome(Ending.INTERRUPTED)))
    assert found.outcome("LLD-1", holder) is None, "it is resumed here"
    assert found.have_worked_on("LLD-1", holder), "so --fresh does not drop its checkpoint"


def test_a_failure_is_reported_once_so_that_a_person_can_retry_it(other: RunFolder) -> None:
    found, holder = other_runs(other)
    write(other, BEGAN + 1, ended(failed("exit 3")))
    outcome = found.outcome("LLD-1", holder)
    assert outcome and outcome.ending is Ending.FAILED_IN_OTHER_RUN
    assert outcome.error == f"it failed in run {other.id}: exit 3"
    assert found.outcome("LLD-1", holder) is None
    write(other, BEGAN + 2, ended(failed("exit 4")))
    assert found.outcome("LLD-1", holder)


def test_an_item_between_two_attempts_belongs_to_its_run_while_that_is_alive(other: RunFolder) -> None:
    found, holder = other_runs(other)
    write(other, BEGAN - 1, events.ItemStarted("LLD-1", 1, 1))
    outcome = found.outcome("LLD-1", holder)
    assert outcome and outcome.ending is Ending.HELD_BY_OTHER_RUN
    write(other, BEGAN, events.ItemSuspended("LLD-1"))
    assert found.outcome("LLD-1", holder) is None, "a paused run gives its items away"
    write(other, BEGAN, events.ItemStarted("LLD-1", 1, 2))
    other.close()
    assert found.outcome("LLD-1", holder) is None


def test_items_that_ended_elsewhere_are_found_without_asking_for_each(other: RunFolder) -> None:
    found, _ = other_runs(other)
    write(other, BEGAN - 1, replace(ended(APPROVED), item="LLD-2"))
    write(other, BEGAN + 1, ended(APPROVED), events.ItemStarted("LLD-3", 1, 1))
    assert found.ended_items() == {"LLD-1"}
    found.own_run = other.id
    assert found.ended_items() == set()


def test_only_the_journals_of_other_runs_are_read(other: RunFolder) -> None:
    found, holder = other_runs(other)
    write(other, BEGAN + 1, ended(APPROVED))
    assert found.outcome("LLD-2", holder) is None and found.outcome("LLD-1", None) is None
    for name in ("", "..", f"../{other.path.parent.name}/{other.id}", "review"):
        assert found.outcome("LLD-1", Holder(1, name)) is None
    found.own_run = other.id
    assert found.outcome("LLD-1", holder) is None and not found.have_worked_on("LLD-1", holder)
