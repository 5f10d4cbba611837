"""A role with several providers: the next one is asked only when the one before has no usable key."""

import pytest

from agentos.core.protocol.commands import GrantLease, StopWorker
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.core.scheduling.run_limits import Limits

from .builders import key, steady
from .scheduler_harness import Conducted

ROLE = {"providers": ("anthropic", "gemini"), "models": ("claude-sonnet-4-5", "gemini-2.5-pro")}
LIMITED = Refusal(RefusalKind.RATE_LIMITED, "429", 30.0)
SPENT = Refusal(RefusalKind.DAY_EXHAUSTED, "429 PerDay", None, 40000.0)
REJECTED = Refusal(RefusalKind.KEY_REJECTED, "401 unauthorised")
TROUBLE = Refusal(RefusalKind.PROVIDER_ERROR, "529")


BOTH = [key("gemini-1", "gemini", concurrency=4), key("anthropic-1", "anthropic", concurrency=1)]


def stage(items: int = 2, max_wait: float = 3600.0) -> Conducted:
    return Conducted(BOTH, items, Limits(parallel=items, max_wait=max_wait))


def granted(run: Conducted, item: str) -> GrantLease:
    lease = run.want(item, **ROLE)
    assert lease is not None
    return lease


def test_the_preferred_provider_is_asked_first_and_with_its_own_model() -> None:
    lease = granted(stage(), "LLD-1")
    assert (lease.key, lease.provider, lease.model) == ("anthropic-1", "anthropic", "claude-sonnet-4-5")


def test_a_busy_key_is_waited_for_and_not_replaced_by_the_fallback() -> None:
    run = stage()
    first = granted(run, "LLD-1")
    assert run.want("LLD-2", **ROLE) is None
    run.answer(first)
    second = run.held("LLD-2")
    assert second is not None and second.key == "anthropic-1"


@pytest.mark.parametrize("refusal", [LIMITED, SPENT, REJECTED])
def test_when_the_preferred_provider_has_no_usable_key_the_next_one_serves_at_once(refusal: Refusal) -> None:
    run = stage()
    run.refuse(granted(run, "LLD-1"), refusal)
    lease = granted(run, "LLD-1")
    assert (lease.key, lease.model) == ("gemini-1", "gemini-2.5-pro")


def test_the_preferred_provider_is_used_again_when_its_rest_is_over() -> None:
    run = stage()
    run.refuse(granted(run, "LLD-1"), LIMITED)
    run.answer(granted(run, "LLD-1"))
    run.at(run.now + 31)
    assert granted(run, "LLD-1").key == "anthropic-1"


def storm(run: Conducted) -> None:
    for _ in range(5):
        run.pool.breaker("anthropic").record_failure(run.now, run.now, steady)


def test_in_a_storm_the_next_provider_serves_and_one_call_looks_now_and_then() -> None:
    run = stage(items=3)
    storm(run)
    assert granted(run, "LLD-1").key == "gemini-1"
    run.at(run.now + 3)
    assert granted(run, "LLD-2").key == "anthropic-1", "somebody has to find out whether it is over"
    assert granted(run, "LLD-3").key == "gemini-1"


def test_a_storm_is_no_standstill_while_the_fallback_serves() -> None:
    run = stage(items=2, max_wait=60.0)
    storm(run)
    run.answer(granted(run, "LLD-1"))
    run.at(run.now + 100)
    assert run.of(StopWorker) == []


def test_a_storm_is_a_standstill_for_a_role_without_another_provider() -> None:
    run = stage(items=1, max_wait=60.0)
    storm(run)
    for number in range(30):
        run.want("LLD-1", call=f"call-{number}", providers=("anthropic",))
        run.at(run.now + 10)
        if lease := run.held("LLD-1"):
            run.refuse(lease, TROUBLE)
    assert run.of(StopWorker) and run.run.exit_code() == 75
    assert run.now - 1000.0 > 60.0


def test_a_role_whose_keys_all_rest_longer_than_max_wait_stops_the_run_whoever_else_is_idle() -> None:
    run = stage(items=1, max_wait=20.0)
    lease = run.want("LLD-1", providers=("anthropic",))
    assert lease is not None
    run.refuse(lease, LIMITED)
    assert run.want("LLD-1", providers=("anthropic",)) is None
    assert run.of(StopWorker) == [StopWorker("LLD-1")] and run.run.exit_code() == 75


def test_a_role_without_a_key_that_could_serve_it_stops_the_run_whoever_else_is_idle() -> None:
    run = stage(items=1)
    lease = run.want("LLD-1", providers=("anthropic",))
    assert lease is not None
    run.refuse(lease, REJECTED)
    assert run.want("LLD-1", providers=("anthropic",)) is None
    assert run.of(StopWorker) == [StopWorker("LLD-1")] and run.run.exit_code() == 4


def test_in_a_storm_items_go_on_being_started_if_another_provider_serves() -> None:
    run = Conducted(BOTH, items=3, limits=Limits(parallel=2))
    storm(run)
    run.finish("LLD-1")
    assert run.started() == ["LLD-1", "LLD-2", "LLD-3"]
