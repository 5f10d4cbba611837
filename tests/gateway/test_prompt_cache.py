"""A session keeps the prompt cache of its key, and the gateway's cost is the provider's bill."""

import pytest
from bench.prompt_cache import AIM, run_session


def test_a_session_costs_the_same_on_one_key_and_on_ten() -> None:
    one, many = run_session(8, keys=1), run_session(8, keys=10)
    assert many.billed == pytest.approx(one.billed, rel=AIM)
    assert one.cached_share > 0.7, "the session is served from the cache"
    assert one.reported == pytest.approx(one.billed) and many.reported == pytest.approx(many.billed)
