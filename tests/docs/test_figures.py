"""The speed-up that the reports quote can be reproduced."""

import pytest
from bench.parallel import measure

ITEMS, CALLS, LATENCY = 6, 2, 4.0
ATTEMPTS = 2


@pytest.mark.slow
def test_six_items_with_three_workers_take_less_than_half_of_the_sequential_time() -> None:
    """The sequential time is at least that of the calls. A busy machine gets a second attempt."""
    sequential = ITEMS * CALLS * LATENCY
    taken = [measure(ITEMS, LATENCY, workers=3)[0]]
    while taken[-1] >= 0.5 * sequential and len(taken) < ATTEMPTS:
        taken.append(measure(ITEMS, LATENCY, workers=3)[0])
    assert taken[-1] < 0.5 * sequential, f"{taken} s, sequentially at least {sequential} s"
