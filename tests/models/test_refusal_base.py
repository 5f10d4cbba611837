"""Retry-After, durations and daily resets in every form that was seen."""

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentos.core.ratelimit.limits import seconds_to_midnight_pacific
from agentos.core.ratelimit.refusals import clamp_hint
from agentos.models.refusal_base import protobuf_duration, retry_after

WALL = datetime(2026, 10, 21, 7, 28, 0, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("36", 36.0),
        ("0", 0.0),
        (" 5 ", 5.0),
        ("0.25", 0.25),
        ("Wed, 21 Oct 2026 07:28:30 GMT", 30.0),
        ("Wed, 21 Oct 2026 09:28:30 +0200", 30.0),
        ("Wed, 21 Oct 2026 07:28:30 -0000", 30.0),
        ("Wed, 21 Oct 2026 07:00:00 GMT", 0.0),
        ("", None),
        ("soon", None),
        ("36s", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(value: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": value}, WALL) == seconds


def test_without_the_header_there_is_no_hint() -> None:
    assert retry_after({}, WALL) is None


@pytest.mark.parametrize(
    ("value", "rest"),
    [
        ("36", 36.0),
        ("0.5", 0.5),
        ("Wed, 21 Oct 2026 07:28:30 GMT", 30.0),
        ("Wed, 21 Oct 2099 07:28:30 GMT", 3600.0),
        ("", 60.0),
        ("soon", 60.0),
        ("NaN", 60.0),
        ("-5", 60.0),
        ("1e9", 3600.0),
        ("inf", 3600.0),
        ("-inf", 60.0),
    ],
)
def test_a_hint_is_clamped_to_a_reasonable_cooldown(value: str, rest: float) -> None:
    assert clamp_hint(retry_after({"retry-after": value}, WALL)) == rest


@pytest.mark.parametrize(
    "value",
    [
        "Wed, 21 Oct 99999999999999999999 07:28:00 GMT",
        "Wed, 99 Oct 2026 99:99:99 GMT",
        "Wed, 21 Oct 2026 07:28:00 +9999999999",
        "Mon, 01 Jan 0001 00:00:00 +1400",
    ],
)
def test_an_impossible_date_is_not_an_error(value: str) -> None:
    clamp_hint(retry_after({"retry-after": value}, WALL))


@given(st.text() | st.from_regex(r"[A-Z][a-z]{2}, \d{1,4} Oct \d{1,25} \d+:\d+:\d+ ([+-]\d{1,12}|GMT)"))
def test_any_header_is_read_without_an_exception(value: str) -> None:
    assert 0.0 <= clamp_hint(retry_after({"retry-after": value}, WALL)) <= 3600.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("36s", 36.0),
        ("0s", 0.0),
        ("0.5s", 0.5),
        ("36.123456789s", 36.123456789),
        ("-1s", -1.0),
        ("36", None),
        ("s", None),
        ("36s ", None),
        ("1m", None),
        ("1e9s", None),
        (36, None),
        (None, None),
        ({"seconds": 36}, None),
    ],
)
def test_a_duration_is_seconds_with_an_s(text: object, seconds: float | None) -> None:
    assert protobuf_duration(text) == seconds


@pytest.mark.parametrize(
    ("moment", "hours"),
    [
        (datetime(2026, 7, 1, 6, 0, tzinfo=UTC), 1.0),
        (datetime(2026, 7, 1, 7, 0, tzinfo=UTC), 24.0),
        (datetime(2026, 1, 1, 7, 30, tzinfo=UTC), 0.5),
        (datetime(2026, 3, 8, 8, 0, tzinfo=UTC), 23.0),
        (datetime(2026, 11, 1, 7, 0, tzinfo=UTC), 25.0),
    ],
    ids=["summer", "summer midnight", "winter", "the day that loses an hour", "the day that gains one"],
)
def test_googles_day_ends_at_midnight_pacific(moment: datetime, hours: float) -> None:
    assert seconds_to_midnight_pacific(moment.timestamp()) == hours * 3600


@given(st.floats(0, 4102444800))
def test_midnight_is_always_in_the_future_and_at_most_25_hours_away(wall: float) -> None:
    assert 0 < seconds_to_midnight_pacific(wall) <= 25 * 3600
    assert not math.isnan(seconds_to_midnight_pacific(wall))
