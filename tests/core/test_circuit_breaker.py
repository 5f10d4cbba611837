"""The circuit breaker of a provider that fails for every key."""

from agentos.core.ratelimit.circuit_breaker import CircuitBreaker

from .builders import steady


def open_breaker(now: float = 0.0) -> CircuitBreaker:
    breaker = CircuitBreaker()
    assert [breaker.record_failure(now, now, steady) for _ in range(5)] == [False, False, False, False, True]
    return breaker


def test_five_consecutive_failures_open_the_breaker_once() -> None:
    breaker = open_breaker()
    assert not breaker.allows(1.0)
    assert breaker.record_failure(1.0, 1.0, steady) is False


def test_an_answer_resets_the_failure_count() -> None:
    breaker = CircuitBreaker()
    for _ in range(4):
        breaker.record_failure(0.0, 0.0, steady)
    breaker.close()
    assert breaker.record_failure(2.0, 2.0, steady) is False
    assert breaker.allows(2.0)


def test_an_open_breaker_admits_one_probe_at_a_time() -> None:
    breaker = open_breaker()
    assert breaker.open_until == 2.0 and breaker.allows(2.0)
    breaker.record_send("lease-7")
    breaker.record_end("lease-1")
    assert not breaker.allows(100.0)
    breaker.record_end("lease-7")
    assert breaker.allows(100.0)


def test_each_failed_probe_doubles_the_wait() -> None:
    breaker, waits = open_breaker(), []
    for _ in range(4):
        now = breaker.open_until
        breaker.record_send("lease-7")
        breaker.record_end("lease-7")
        breaker.record_failure(now, now, steady)
        waits.append(breaker.open_until - now)
    assert waits == [4.0, 8.0, 16.0, 32.0]


def test_calls_in_flight_when_it_opened_do_not_extend_the_wait() -> None:
    breaker = open_breaker(now=10.0)
    for _ in range(20):
        assert breaker.record_failure(9.0, 11.0, steady) is False
    assert breaker.open_until == 12.0


def test_an_answer_closes_the_breaker() -> None:
    breaker = open_breaker(now=10.0)
    breaker.close()
    assert breaker.allows(42.0) and breaker.opened_at is None


def test_a_breaker_opened_by_another_run_opens_here_when_its_note_arrives() -> None:
    breaker = CircuitBreaker()
    breaker.merge(4, 0.0, "503", 9.0)
    assert breaker.allows(9.0)
    breaker.merge(5, 12.0, "503", 10.0)
    breaker.merge(6, 16.0, "503", 12.0)
    assert breaker.opened_at == 10.0 and not breaker.allows(15.0) and breaker.allows(16.0)
    assert breaker.record_failure(16.0, 17.0, steady) is False and breaker.open_until == 17.0 + 8.0
