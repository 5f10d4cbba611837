"""The coordinator's lines for a run."""

import pytest

from agentos.core.protocol import events
from agentos.outputs.console import MAX_HELD_LINES, Console, OutputOrder

RECOVERIES: list[events.Event] = [
    events.PoolRestored(2.0),
    events.KeysAvailable(2.0),
    events.BreakerClosed("gemini", 2.0),
    events.DiskWaitEnded(2.0),
]


@pytest.mark.parametrize("recovery", RECOVERIES, ids=lambda event: type(event).__name__)
def test_recovery_does_not_resume_a_run_that_a_user_paused(recovery: events.Event) -> None:
    lines = list[str]()
    console = Console(lines.append, str, lines.append)
    console.on_event(events.RunPaused(), 100.0)
    console.on_event(recovery, 101.0)
    console.on_event(events.RunResumed(2.0), 102.0)
    console.on_event(recovery, 103.0)
    assert lines[1].endswith("after 2.0s. Still paused. Resume with: agentos resume")
    assert lines[3].endswith("after 2.0s. Resuming workflows...")


def test_items_that_wait_for_their_turn_lose_lines_only_while_too_many_are_held() -> None:
    order = OutputOrder()
    order.start(["A", "B", "C"])
    assert order.add("A", "a1") == ["a1"], "the first item need not wait"
    for number in range(MAX_HELD_LINES + 5):
        assert order.add("B", f"b{number}") == []
    assert order.add("C", "c1") == []
    written = order.end("A")
    assert (
        written[-1] == "[B] ... the rest is in its log: agentos logs B" and len(written) == MAX_HELD_LINES + 1
    )
    assert order.end("B") == ["[C] ... the rest is in its log: agentos logs C"]


def test_lines_are_held_again_after_the_held_ones_were_written() -> None:
    order = OutputOrder()
    order.start(["A", "B", "C"])
    for number in range(MAX_HELD_LINES + 5):
        order.add("B", f"b{number}")
    order.end("A")
    assert order.add("C", "c1") == [], "it waits for B"
    assert order.end("B") == ["c1"]


def test_the_end_of_a_wait_names_what_was_waited_for() -> None:
    lines = list[str]()
    console = Console(lines.append, str, lines.append)
    console.on_event(events.DiskWaitEnded(2.0, "/home/me/project"), 100.0)
    console.on_event(events.DiskWaitEnded(2.0, "Postgres at db:5432"), 101.0)
    assert "Disk space is available again after 2.0s" in lines[0]
    assert "Postgres at db:5432 is back after 2.0s" in lines[1]
