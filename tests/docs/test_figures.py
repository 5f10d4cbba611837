"""The figures that the reports quote can be had again."""

import pytest
from bench.parallel import measure

ITEMS, CALLS, LATENCY = 6, 2, 4.0
TRIES = 2


@pytest.mark.slow
def test_six_items_with_three_workers_take_less_than_half_of_the_sequential_time() -> None:
    """One after another they cannot take less than their calls do. A busy machine gets another try."""
    sequential = ITEMS * CALLS * LATENCY
    taken = [measure(ITEMS, LATENCY, workers=3)[0]]
    while taken[-1] >= 0.5 * sequential and len(taken) < TRIES:
        taken.append(measure(ITEMS, LATENCY, workers=3)[0])
    assert taken[-1] < 0.5 * sequential, f"{taken} s, one after another at least {sequential} s"
