"""Who is served first, and that nobody waits for ever."""

from dataclasses import replace

from agentos.core.quota.lease import HEAD_START, LeaseRequest
from agentos.core.quota.pool import MAX_OVERTAKING, Pool
from agentos.core.ratelimit.limits import CallCost, Dimension, Rate

from .builders import key, keys, proven_pool


def want(holder: str, asked_at: float = 0.0, behind: int = 0, load: CallCost | None = None) -> LeaseRequest:
    return LeaseRequest(holder, "call", ("gemini",), asked_at, cost=load or CallCost(), calls_done=behind)


def served(pool: Pool, now: float) -> list[str]:
    return [lease.request.holder for lease in pool.grant(now)]


def test_a_nearly_finished_item_goes_before_one_that_asked_a_little_earlier() -> None:
    pool = Pool(keys(1))
    pool.request(want("fresh", asked_at=0.0))
    pool.request(want("nearly done", asked_at=1.0, behind=3))
    assert served(pool, 1.0) == ["nearly done"]


def test_of_items_that_are_equally_far_the_first_to_ask_is_served_first() -> None:
    pool = Pool(keys(2))
    for number, behind in enumerate((1, 1, 1)):
        pool.request(want(f"LLD-{number}", asked_at=float(number), behind=behind))
    assert served(pool, 5.0) == ["LLD-0", "LLD-1"]


def test_a_fresh_item_is_not_passed_for_ever_by_nearly_finished_ones() -> None:
    pool, now = Pool(keys(1)), 0.0
    pool.request(want("fresh", asked_at=now))
    for number in range(100):
        pool.request(want(f"LLD-{number}", asked_at=now, behind=4))
        (lease,) = pool.grant(now)
        if lease.request.holder == "fresh":
            break
        pool.release(lease.id)
        now += 1.0
    assert now <= 4 * HEAD_START + 1.0


def paced(*rates: tuple[Dimension, Rate]) -> Pool:
    return proven_pool([replace(key("key-1", concurrency=9), rates=rates)])


TOKENS = (Dimension.TOKENS, Rate(100, 60.0))
REQUESTS = (Dimension.REQUESTS, Rate(1000, 60.0))


def test_a_call_that_does_not_fit_now_lets_one_pass_that_does() -> None:
    pool = paced(REQUESTS, TOKENS)
    for holder, tokens in (("first", 50), ("large", 80), ("small", 40), ("also large", 80)):
        pool.request(want(holder, load=CallCost(tokens)))
    assert served(pool, 0.0) == ["first", "small"]


def test_a_call_that_is_larger_in_sum_passes_if_what_it_needs_is_there() -> None:
    pool = paced(REQUESTS, (Dimension.INPUT, Rate(100, 60.0)))
    for holder, load in (
        ("first", CallCost(90, 0)),
        ("much in", CallCost(50, 0)),
        ("much out", CallCost(5, 500)),
    ):
        pool.request(want(holder, load=load))
    assert served(pool, 0.0) == ["first", "much out"]


def test_a_large_call_is_not_passed_for_ever_by_small_ones() -> None:
    pool, now = paced(REQUESTS, TOKENS), 0.0
    waiting_since = None
    for number in range(2000):
        if number == 50:
            pool.request(want("large", asked_at=now, load=CallCost(90)))
            waiting_since = now
        pool.request(want(f"LLD-{number}", asked_at=now, load=CallCost(10)))
        for lease in pool.grant(now):
            pool.release(lease.id)
            if lease.request.holder == "large":
                assert waiting_since is not None
                # Those who asked before it, and a whole window.
                assert now - waiting_since <= MAX_OVERTAKING + 300
                return
        now += 2.0
    raise AssertionError("it was never served")


def test_one_who_asks_for_another_model_is_not_held_up() -> None:
    pool = paced(REQUESTS, TOKENS)
    for holder, model in (("first", "pro"), ("second", "pro"), ("other", "flash")):
        pool.request(want(holder, load=CallCost(90))._replace(models=(model,)))
    assert served(pool, 0.0) == ["first", "other"]


def test_keys_are_spread_and_none_is_hammered() -> None:
    pool, used = Pool(keys(4)), []
    for number in range(12):
        pool.request(want(f"LLD-{number}"))
        (lease,) = pool.grant(float(number))
        used.append(lease.credential.name)
        pool.release(lease.id)
    assert used == ["key-1", "key-2", "key-3", "key-4"] * 3
