"""A provider that fails for everybody."""

from agentos.core.ratelimit.circuit_breaker import CircuitBreaker

from .builders import steady


def stormy(now: float = 0.0) -> CircuitBreaker:
    breaker = CircuitBreaker()
    assert [breaker.record_failure(now, now, steady) for _ in range(5)] == [False, False, False, False, True]
    return breaker


def test_five_failures_in_a_row_are_a_storm_and_it_is_said_once() -> None:
    breaker = stormy()
    assert not breaker.allows(1.0)
    assert breaker.record_failure(1.0, 1.0, steady) is False


def test_an_answer_in_between_begins_the_count_anew() -> None:
    breaker = CircuitBreaker()
    for _ in range(4):
        breaker.record_failure(0.0, 0.0, steady)
    breaker.close()
    assert breaker.record_failure(2.0, 2.0, steady) is False
    assert breaker.allows(2.0)


def test_one_call_at_a_time_looks_whether_the_storm_is_over() -> None:
    breaker = stormy()
    assert breaker.open_until == 2.0 and breaker.allows(2.0)
    breaker.record_send("lease-7")
    breaker.record_end("lease-1")
    assert not breaker.allows(100.0)
    breaker.record_end("lease-7")
    assert breaker.allows(100.0)


def test_each_look_in_vain_makes_the_next_wait_longer() -> None:
    breaker, waits = stormy(), []
    for _ in range(4):
        now = breaker.open_until
        breaker.record_send("lease-7")
        breaker.record_end("lease-7")
        breaker.record_failure(now, now, steady)
        waits.append(breaker.open_until - now)
    assert waits == [4.0, 8.0, 16.0, 32.0]


def test_calls_that_were_under_way_when_it_began_make_no_wait_longer() -> None:
    breaker = stormy(now=10.0)
    for _ in range(20):
        assert breaker.record_failure(9.0, 11.0, steady) is False
    assert breaker.open_until == 12.0


def test_an_answer_ends_the_storm() -> None:
    breaker = stormy(now=10.0)
    breaker.close()
    assert breaker.allows(42.0) and breaker.opened_at is None


def test_a_storm_that_another_run_has_met_begins_here_when_it_is_told() -> None:
    breaker = CircuitBreaker()
    breaker.merge(4, 0.0, "503", 9.0)
    assert breaker.allows(9.0)
    breaker.merge(5, 12.0, "503", 10.0)
    breaker.merge(6, 16.0, "503", 12.0)
    assert breaker.opened_at == 10.0 and not breaker.allows(15.0) and breaker.allows(16.0)
    assert breaker.record_failure(16.0, 17.0, steady) is False and breaker.open_until == 17.0 + 8.0
