"""Exponential backoff with jitter."""

from hypothesis import given
from hypothesis import strategies as st

from agentos.core.backoff import backoff

from .builders import steady


def test_the_delay_doubles_up_to_the_cap() -> None:
    delays = [backoff(failures, steady) for failures in range(1, 9)]
    assert delays == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


def test_jitter_varies_the_delay_by_a_quarter_both_ways() -> None:
    assert backoff(3, lambda: 0.0) == 3.0
    assert backoff(3, lambda: 1.0) == 5.0


@given(st.integers(-5, 10**9), st.floats(0, 1))
def test_the_delay_is_never_zero_and_never_far_above_the_cap(failures: int, jitter: float) -> None:
    assert 0.75 <= backoff(failures, lambda: jitter) <= 75.0
