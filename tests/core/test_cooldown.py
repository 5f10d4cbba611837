"""How long a bucket cools down after a refusal."""

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
def test_a_cooldown_lasts_exactly_as_long_as_a_valid_hint(hint: float | None, seconds: float) -> None:
    assert clamp_hint(hint) == seconds
    assert Cooldown().start(100.0, hint, "429") == seconds


def test_a_hint_followed_in_vain_is_doubled_each_time() -> None:
    cooldown, now, lengths = Cooldown(), 0.0, []
    for _ in range(4):
        lengths.append(cooldown.start(now, 5.0, "429"))
        now += lengths[-1]
    assert lengths == [5.0, 10.0, 20.0, 40.0]


def test_a_hint_longer_than_twice_the_wait_in_vain_is_taken_at_its_word() -> None:
    cooldown = Cooldown()
    now = cooldown.start(0.0, 0.5, "429")
    assert cooldown.start(now, 9.0, "429") == 9.0


def test_a_hint_of_zero_is_not_retried_forever() -> None:
    cooldown, now = Cooldown(), 0.0
    for _ in range(3000):
        now += cooldown.start(now, 0.0, "429")
    assert now > 3600.0


def test_refusals_of_calls_in_flight_do_not_double_the_hint() -> None:
    cooldown = Cooldown()
    cooldown.start(0.0, 10.0, "429")
    assert cooldown.start(1.0, 10.0, "429") == 10.0


def test_the_later_of_two_ends_wins() -> None:
    cooldown = Cooldown()
    cooldown.start(0.0, 60.0, "429")
    assert cooldown.start(1.0, 5.0, "429") == 59.0


def test_an_answer_to_a_call_sent_after_the_refusal_ends_the_cooldown() -> None:
    cooldown = Cooldown()
    cooldown.start(10.0, 60.0, "429")
    assert cooldown.record_success(sent_at=9.0) is False and cooldown.limited(11.0)
    assert cooldown.record_success(sent_at=70.0) is False and not cooldown.limited(11.0)
    assert cooldown.start(80.0, 5.0, "429") == 5.0


def test_an_answer_on_an_exhausted_day_is_a_recovery() -> None:
    cooldown = Cooldown()
    cooldown.start_exhausted(0.0, 40000.0, "429")
    assert cooldown.record_success(sent_at=36.0) is True
    assert not cooldown.exhausted(37.0) and not cooldown.blocks(37.0)


def test_an_exhausted_day_is_probed_hourly_and_ends_at_its_reset() -> None:
    cooldown = Cooldown()
    assert cooldown.start_exhausted(0.0, 40000.0, "429") == 40000.0
    assert cooldown.blocks(3599.0) and not cooldown.blocks(3600.0)
    cooldown.start_exhausted(3600.0, 36400.0, "429")
    assert cooldown.blocks(7199.0) and cooldown.next_allowed_at() == 7200.0
    assert cooldown.ends_at() == 40000.0


def test_an_exhausted_day_that_ends_before_the_next_probe_opens_at_its_end() -> None:
    cooldown = Cooldown()
    cooldown.start_exhausted(0.0, 600.0, "429")
    assert cooldown.next_allowed_at() == 600.0 and not cooldown.blocks(600.0)


@given(st.lists(st.tuples(st.floats(0, 100), st.none() | st.floats(allow_nan=True)), max_size=30))
def test_a_cooldown_blocks_until_it_opens_and_never_longer(steps: list[tuple[float, float | None]]) -> None:
    cooldown, now = Cooldown(), 0.0
    for wait, hint in steps:
        now += wait
        assert 0.0 <= cooldown.start(now, hint, "429") < 3600.001
        assert cooldown.blocks(now) == (now < cooldown.next_allowed_at())
        assert not cooldown.blocks(cooldown.next_allowed_at())


def test_the_wait_expected_before_a_probe_does_not_outlast_the_next_refusal() -> None:
    cooldown = Cooldown()
    cooldown.start(100.0, None, "429", probing=True)
    cooldown.record_send(102.0)
    cooldown.start(102.1, 1.0, "429")
    assert cooldown.until < 110.0
