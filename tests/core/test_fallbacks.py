"""A role with several providers: the next one is used only if the one before has no usable key."""

import pytest

from agentos.core.protocol.commands import GrantLease, StopWorker
from agentos.core.quota.budget import Limits
from agentos.core.ratelimit.refusals import Refusal, RefusalKind

from .builders import key, steady
from .scheduler_harness import SchedulerHarness

ROLE = {"providers": ("anthropic", "gemini"), "models": ("claude-sonnet-4-5", "gemini-2.5-pro")}
LIMITED = Refusal(RefusalKind.RATE_LIMITED, "429", 30.0)
EXHAUSTED = Refusal(RefusalKind.DAY_EXHAUSTED, "429 PerDay", None, 40000.0)
REJECTED = Refusal(RefusalKind.KEY_REJECTED, "401 unauthorised")
PROVIDER_ERROR = Refusal(RefusalKind.PROVIDER_ERROR, "529")


BOTH = [key("gemini-1", "gemini", concurrency=4), key("anthropic-1", "anthropic", concurrency=1)]


def fallback_run(items: int = 2, max_wait: float = 3600.0) -> SchedulerHarness:
    return SchedulerHarness(BOTH, items, Limits(parallel=items, max_wait=max_wait))


def request_granted(run: SchedulerHarness, item: str) -> GrantLease:
    lease = run.request(item, **ROLE)
    assert lease is not None
    return lease


def test_the_preferred_provider_serves_first_with_its_own_model() -> None:
    lease = request_granted(fallback_run(), "LLD-1")
    assert (lease.key, lease.provider, lease.model) == ("anthropic-1", "anthropic", "claude-sonnet-4-5")


def test_a_request_waits_for_a_busy_key_instead_of_using_the_fallback() -> None:
    run = fallback_run()
    first = request_granted(run, "LLD-1")
    assert run.request("LLD-2", **ROLE) is None
    run.answer(first)
    second = run.held("LLD-2")
    assert second is not None and second.key == "anthropic-1"


@pytest.mark.parametrize("refusal", [LIMITED, EXHAUSTED, REJECTED])
def test_the_fallback_serves_at_once_if_the_preferred_provider_has_no_usable_key(refusal: Refusal) -> None:
    run = fallback_run()
    run.refuse(request_granted(run, "LLD-1"), refusal)
    lease = request_granted(run, "LLD-1")
    assert (lease.key, lease.model) == ("gemini-1", "gemini-2.5-pro")


def test_the_preferred_provider_is_used_again_after_its_cooldown() -> None:
    run = fallback_run()
    run.refuse(request_granted(run, "LLD-1"), LIMITED)
    run.answer(request_granted(run, "LLD-1"))
    run.advance_to(run.now + 31)
    assert request_granted(run, "LLD-1").key == "anthropic-1"


def open_breaker(run: SchedulerHarness) -> None:
    for _ in range(5):
        run.pool.breaker("anthropic", "claude-sonnet-4-5").record_failure(run.now, run.now, steady)


def test_the_fallback_serves_while_the_breaker_is_open_except_for_probes() -> None:
    run = fallback_run(items=3)
    open_breaker(run)
    assert request_granted(run, "LLD-1").key == "gemini-1"
    run.advance_to(run.now + 3)
    assert request_granted(run, "LLD-2").key == "anthropic-1", "one call probes whether it has recovered"
    assert request_granted(run, "LLD-3").key == "gemini-1"


def test_an_open_breaker_does_not_stop_the_run_while_the_fallback_serves() -> None:
    run = fallback_run(items=2, max_wait=60.0)
    open_breaker(run)
    run.answer(request_granted(run, "LLD-1"))
    run.advance_to(run.now + 100)
    assert run.of(StopWorker) == []


def test_an_open_breaker_stops_the_run_for_a_role_without_a_fallback() -> None:
    run = fallback_run(items=1, max_wait=60.0)
    open_breaker(run)
    for number in range(30):
        run.request("LLD-1", call=f"call-{number}", providers=("anthropic",))
        run.advance_to(run.now + 10)
        if lease := run.held("LLD-1"):
            run.refuse(lease, PROVIDER_ERROR)
    assert run.of(StopWorker) and run.run.exit_code() == 75
    assert run.now - 1000.0 > 60.0


def test_a_role_whose_keys_cool_down_longer_than_max_wait_stops_the_run() -> None:
    run = fallback_run(items=1, max_wait=20.0)
    lease = run.request("LLD-1", providers=("anthropic",))
    assert lease is not None
    run.refuse(lease, LIMITED)
    assert run.request("LLD-1", providers=("anthropic",)) is None
    assert run.of(StopWorker) == [StopWorker("LLD-1")] and run.run.exit_code() == 75


def test_a_role_without_any_active_key_stops_the_run() -> None:
    run = fallback_run(items=1)
    lease = run.request("LLD-1", providers=("anthropic",))
    assert lease is not None
    run.refuse(lease, REJECTED)
    assert run.request("LLD-1", providers=("anthropic",)) is None
    assert run.of(StopWorker) == [StopWorker("LLD-1")] and run.run.exit_code() == 4


def test_items_still_start_while_the_breaker_is_open_if_the_fallback_serves() -> None:
    run = SchedulerHarness(BOTH, items=3, limits=Limits(parallel=2))
    open_breaker(run)
    run.finish("LLD-1")
    assert run.started() == ["LLD-1", "LLD-2", "LLD-3"]
