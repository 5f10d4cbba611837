"""How long a bucket rests."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentos.core.ratelimit.cooldown import Cooldown
from agentos.core.ratelimit.refusals import clamp_hint


@pytest.mark.parametrize(
    ("hint", "seconds"),
    [
        (None, 60.0),
        (2.0, 2.0),
        (0.25, 0.25),
        (0.0, 0.0),
        (-5.0, 60.0),
        (math.nan, 60.0),
        (1e9, 3600.0),
        (math.inf, 3600.0),
    ],
)
def test_a_key_rests_exactly_as_long_as_a_sane_hint_says(hint: float | None, seconds: float) -> None:
    assert clamp_hint(hint) == seconds
    assert Cooldown().start(100.0, hint, "429") == seconds


def test_a_hint_that_was_obeyed_in_vain_counts_double_each_time() -> None:
    rest, now, rests = Cooldown(), 0.0, []
    for _ in range(4):
        rests.append(rest.start(now, 5.0, "429"))
        now += rests[-1]
    assert rests == [5.0, 10.0, 20.0, 40.0]


def test_a_hint_of_nothing_cannot_be_obeyed_for_ever() -> None:
    rest, now = Cooldown(), 0.0
    for _ in range(3000):
        now += rest.start(now, 0.0, "429")
    assert now > 3600.0


def test_refusals_of_calls_that_were_already_under_way_do_not_count_double() -> None:
    rest = Cooldown()
    rest.start(0.0, 10.0, "429")
    assert rest.start(1.0, 10.0, "429") == 10.0


def test_the_later_of_two_ends_wins() -> None:
    rest = Cooldown()
    rest.start(0.0, 60.0, "429")
    assert rest.start(1.0, 5.0, "429") == 59.0


def test_an_answer_to_a_call_sent_after_the_refusal_ends_the_rest() -> None:
    rest = Cooldown()
    rest.start(10.0, 60.0, "429")
    assert rest.record_success(sent_at=9.0) is False and rest.limited(11.0)
    assert rest.record_success(sent_at=70.0) is False and not rest.limited(11.0)
    assert rest.start(80.0, 5.0, "429") == 5.0


def test_an_answer_on_a_spent_day_is_a_recovery() -> None:
    rest = Cooldown()
    rest.start_exhausted(0.0, 40000.0, "429")
    assert rest.record_success(sent_at=36.0) is True
    assert not rest.exhausted(37.0) and not rest.blocks(37.0)


def test_a_spent_day_is_looked_at_hourly_and_counted_on_when_it_is_over() -> None:
    rest = Cooldown()
    assert rest.start_exhausted(0.0, 40000.0, "429") == 40000.0
    assert rest.blocks(3599.0) and not rest.blocks(3600.0)
    rest.start_exhausted(3600.0, 36400.0, "429")
    assert rest.blocks(7199.0) and rest.next_allowed_at() == 7200.0
    assert rest.ends_at() == 40000.0


def test_a_spent_day_that_ends_before_the_next_look_opens_at_its_end() -> None:
    rest = Cooldown()
    rest.start_exhausted(0.0, 600.0, "429")
    assert rest.next_allowed_at() == 600.0 and not rest.blocks(600.0)


@given(st.lists(st.tuples(st.floats(0, 100), st.none() | st.floats(allow_nan=True)), max_size=30))
def test_a_rest_is_closed_until_it_opens_and_never_longer(steps: list[tuple[float, float | None]]) -> None:
    rest, now = Cooldown(), 0.0
    for wait, hint in steps:
        now += wait
        assert 0.0 <= rest.start(now, hint, "429") < 3600.001
        assert rest.blocks(now) == (now < rest.next_allowed_at())
        assert not rest.blocks(rest.next_allowed_at())
