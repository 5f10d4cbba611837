"""The order in which requests are served, and how long one can be overtaken."""

from dataclasses import replace

from agentos.core.quota.lease import HEAD_START, LeaseRequest
from agentos.core.quota.pool import MAX_OVERTAKING, Pool
from agentos.core.ratelimit.limits import CallCost, Dimension, Rate

from .builders import key, keys, proven_pool


def request(
    holder: str, requested_at: float = 0.0, calls_done: int = 0, cost: CallCost | None = None
) -> LeaseRequest:
    return LeaseRequest(
        holder, "call", ("gemini",), requested_at, cost=cost or CallCost(), calls_done=calls_done
    )


def served(pool: Pool, now: float) -> list[str]:
    return [lease.request.holder for lease in pool.grant(now)]


def test_a_nearly_finished_item_is_served_before_one_that_requested_slightly_earlier() -> None:
    pool = Pool(keys(1))
    pool.request(request("fresh", requested_at=0.0))
    pool.request(request("nearly done", requested_at=1.0, calls_done=3))
    assert served(pool, 1.0) == ["nearly done"]


def test_items_with_equal_progress_are_served_in_the_order_of_their_requests() -> None:
    pool = Pool(keys(2))
    for number, calls_done in enumerate((1, 1, 1)):
        pool.request(request(f"LLD-{number}", requested_at=float(number), calls_done=calls_done))
    assert served(pool, 5.0) == ["LLD-0", "LLD-1"]


def test_a_new_item_is_not_starved_by_nearly_finished_ones() -> None:
    pool, now = Pool(keys(1)), 0.0
    pool.request(request("fresh", requested_at=now))
    for number in range(100):
        pool.request(request(f"LLD-{number}", requested_at=now, calls_done=4))
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


def test_a_call_that_does_not_fit_lets_one_pass_that_does() -> None:
    pool = paced(REQUESTS, TOKENS)
    for holder, tokens in (("first", 50), ("large", 80), ("small", 40), ("also large", 80)):
        pool.request(request(holder, cost=CallCost(tokens)))
    assert served(pool, 0.0) == ["first", "small"]


def test_a_call_larger_in_total_passes_if_its_own_limits_allow_it() -> None:
    pool = paced(REQUESTS, (Dimension.INPUT, Rate(100, 60.0)))
    for holder, cost in (
        ("first", CallCost(90, 0)),
        ("much in", CallCost(50, 0)),
        ("much out", CallCost(5, 500)),
    ):
        pool.request(request(holder, cost=cost))
    assert served(pool, 0.0) == ["first", "much out"]


def test_a_large_call_is_not_starved_by_small_ones() -> None:
    pool, now = paced(REQUESTS, TOKENS), 0.0
    waiting_since = None
    for number in range(2000):
        if number == 50:
            pool.request(request("large", requested_at=now, cost=CallCost(90)))
            waiting_since = now
        pool.request(request(f"LLD-{number}", requested_at=now, cost=CallCost(10)))
        for lease in pool.grant(now):
            pool.release(lease.id)
            if lease.request.holder == "large":
                assert waiting_since is not None
                # Those who asked before it, and a whole window.
                assert now - waiting_since <= MAX_OVERTAKING + 300
                return
        now += 2.0
    raise AssertionError("it was never served")


def test_a_request_for_another_model_is_not_held_up() -> None:
    pool = paced(REQUESTS, TOKENS)
    for holder, model in (("first", "pro"), ("second", "pro"), ("other", "flash")):
        pool.request(request(holder, cost=CallCost(90))._replace(models=(model,)))
    assert served(pool, 0.0) == ["first", "other"]


def test_calls_are_spread_over_the_keys() -> None:
    pool, used = Pool(keys(4)), []
    for number in range(12):
        pool.request(request(f"LLD-{number}"))
        (lease,) = pool.grant(float(number))
        used.append(lease.credential.name)
        pool.release(lease.id)
    assert used == ["key-1", "key-2", "key-3", "key-4"] * 3
