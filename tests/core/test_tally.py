"""What the events of a run add up to."""

import pytest

from agentos.core import events
from agentos.core.refusals import Refusal, RefusalKind
from agentos.core.results import Ending, Outcome, Usage, Verdict, failed
from agentos.core.tally import Tally, bar


@pytest.mark.parametrize(
    ("done", "total", "shown"),
    [
        (0, 10, "[>         ]"),
        (5, 10, "[=====>    ]"),
        (9, 10, "[=========>]"),
        (10, 10, "[==========]"),
        (1, 3, "[===>      ]"),
        (499, 500, "[=========>]"),
        (0, 0, "[==========]"),
    ],
)
def test_the_bar_has_ten_cells(done: int, total: int, shown: str) -> None:
    assert bar(done, total) == shown


def tally(*heard: events.Event) -> Tally:
    found = Tally()
    started = events.RunStarted("run-1", "lld", "/p", ("LLD-1", "LLD-2", "LLD-3"), 2, ("key-1",))
    for at, event in enumerate((started, *heard)):
        found.hear(event, float(at))
    return found


def ended(item: str, outcome: Outcome) -> events.ItemEnded:
    return events.ItemEnded(item, outcome, 12.5, Usage(3, 100, 20), 1)


def test_items_that_ended_count_and_interrupted_ones_do_not() -> None:
    found = tally(
        ended("LLD-1", Outcome(Ending.FINISHED, Verdict.APPROVED, 2)),
        ended("LLD-2", failed("Invalid spec format")),
        ended("LLD-3", Outcome(Ending.INTERRUPTED)),
    )
    assert found.over == 2
    assert [row.word for row in found.rows.values()] == ["approved", "failed", "interrupted"]
    assert [row.item for row in found.verdicts(Verdict.APPROVED)] == ["LLD-1"]
    assert found.usage == Usage(9, 300, 60)


def test_an_item_runs_between_its_start_and_its_end() -> None:
    start = events.ItemStarted("LLD-1", 1, 1)
    assert [row.item for row in tally(start).running] == ["LLD-1"]
    assert tally(start, ended("LLD-1", Outcome(Ending.PARKED))).running == []
    assert tally(start, events.ItemRetried("LLD-1", "crash", 2, 3, 1.0)).running == []


def test_a_key_is_held_between_its_granting_and_its_return() -> None:
    grant = events.LeaseGranted("LLD-1", "key-1", "lease-1", 0.0)
    back = events.LeaseReturned("LLD-1", "lease-1", 2.5, Usage(1, 10, 5))
    assert tally(grant).held == {"lease-1": "key-1"}
    found = tally(grant, back)
    assert found.held == {} and found.rows["LLD-1"].usage == Usage(1, 10, 5)


def test_refusals_are_counted_when_a_key_rests() -> None:
    refused = events.LeaseReturned("LLD-1", "lease-1", 0.1, refusal=Refusal(RefusalKind.RATE_LIMITED, "429"))
    found = tally(refused, events.KeyLimited("key-1", 60.0, "429"), events.KeySpent("key-1", 9000.0, "429"))
    assert found.refusals == 2
