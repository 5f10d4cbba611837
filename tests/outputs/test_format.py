"""Formatting of times and durations."""

from datetime import datetime

import pytest

from agentos.core.protocol import events
from agentos.outputs.format import clock, duration, event_text, number_ranges

NOON = datetime(2026, 11, 16, 12, 0, 0).timestamp()


def test_a_time_on_another_day_includes_the_date() -> None:
    assert clock(NOON + 3600, NOON) == "13:00:00"
    assert clock(NOON + 13 * 3600, NOON) == "2026-11-17 01:00:00"
    assert clock(NOON - 13 * 3600, NOON) == "2026-11-15 23:00:00"


def test_a_duration_is_rounded_before_its_units_are_chosen() -> None:
    assert [duration(seconds) for seconds in (9.94, 9.96, 59.4, 59.6, 3599.7)] == [
        "9.9s",
        "10s",
        "59s",
        "1m 00s",
        "1h 00m",
    ]


def test_many_numbers_in_a_command_are_written_as_ranges() -> None:
    assert number_ranges(["3", "7", "8", "9", "11", "12"]) == "3 7-9 11 12"
    assert number_ranges(["x", "2", "a b"]) == "x 2 a b"


@pytest.mark.parametrize("kind", [events.KeyLimited, events.KeyExhausted])
def test_with_one_key_there_is_nothing_to_redistribute(
    kind: type[events.KeyLimited] | type[events.KeyExhausted],
) -> None:
    alone, one_of_many = (event_text(kind("key-1", 60.0, "429", only), 0.0) or "" for only in (True, False))
    assert alone.endswith("It is the only key: calls wait for it.")
    assert one_of_many.endswith("Redistributing work...")


@pytest.mark.parametrize(
    ("workers", "machines", "text"),
    [
        (6, 2, "Starting parallel execution of 2 items with 6 workers on 2 machines"),
        (1, 1, "Starting execution of 2 items with 1 worker on 1 machine"),
        (0, 0, "Starting execution of 2 items once a worker connects to the fleet"),
        (3, None, "Starting parallel execution of 2 items with 3 workers"),
    ],
)
def test_a_run_says_where_its_workers_are(workers: int, machines: int | None, text: str) -> None:
    started = events.RunStarted("r", "lld", "/p", ("LLD-1", "LLD-2"), workers, (), machines=machines)
    assert event_text(started, 0.0) == text
