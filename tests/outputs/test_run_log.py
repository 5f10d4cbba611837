"""The log of a run in words, with levels."""

import pytest

from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome, Usage
from agentos.outputs.run_log import LogLevel, log_line


@pytest.mark.parametrize(
    ("event", "level", "text"),
    [
        (events.NodeStarted("LLD-1", "N1_design", 1), LogLevel.INFO, ">>> Executing: N1_design"),
        (events.KeyLimited("key-1", 60.0, "rpm"), LogLevel.WARNING, "Rate limit hit on key-1."),
        (events.KeyQuarantined("key-1", "invalid"), LogLevel.ERROR, "key-1 was rejected"),
        (events.ItemStarted("LLD-1", 1, 2), LogLevel.INFO, "Attempt 2 starts"),
        (events.RunEnded(0, 61.0, 0.0), LogLevel.INFO, "Ended with exit code 0 after 1m 01s"),
    ],
)
def test_an_event_is_a_line_with_a_level(event: events.Event, level: LogLevel, text: str) -> None:
    line = log_line(event, 1.0)
    assert line and line.level is level and line.text.startswith(text)


def test_a_failed_item_is_an_error_and_an_approved_one_is_not() -> None:
    failed = events.ItemEnded("LLD-1", Outcome(Ending.FAILED, error="no"), 1.0, Usage(), 1)
    parked = events.ItemEnded("LLD-1", Outcome(Ending.PARKED), 1.0, Usage(), 1, "N2_human_edit")
    levels = [line.level for event in (failed, parked) if (line := log_line(event, 1.0))]
    assert levels == [LogLevel.ERROR, LogLevel.INFO]


def test_a_line_matches_its_item_and_every_level_up_to_its_own() -> None:
    line = log_line(events.KeyLimited("key-1", 60.0, "rpm"), 1.0)
    assert line and line.matches("", "") and line.matches("", "warning")
    assert not line.matches("", "error") and not line.matches("LLD-1", "")


def test_hostile_text_becomes_one_plain_line() -> None:
    line = log_line(events.KeyQuarantined("key-1", "a\nb\x1b[31m\u202e"), 1.0)
    assert line and "\n" not in line.text and "\x1b" not in line.text and "<U+202E>" in line.text
