"""A provider that fails for everybody."""

from agentos.core.storm import Weather

from .making import steady


def stormy(now: float = 0.0) -> Weather:
    weather = Weather()
    assert [weather.failed(now, now, steady) for _ in range(5)] == [False, False, False, False, True]
    return weather


def test_five_failures_in_a_row_are_a_storm_and_it_is_said_once() -> None:
    weather = stormy()
    assert not weather.lets_through(1.0)
    assert weather.failed(1.0, 1.0, steady) is False


def test_an_answer_in_between_begins_the_count_anew() -> None:
    weather = Weather()
    for _ in range(4):
        weather.failed(0.0, 0.0, steady)
    weather.clear()
    assert weather.failed(2.0, 2.0, steady) is False
    assert weather.lets_through(2.0)


def test_one_call_at_a_time_looks_whether_the_storm_is_over() -> None:
    weather = stormy()
    assert weather.open_until == 2.0 and weather.lets_through(2.0)
    weather.sent("lease-7")
    weather.over("lease-1")
    assert not weather.lets_through(100.0)
    weather.over("lease-7")
    assert weather.lets_through(100.0)


def test_each_look_in_vain_makes_the_next_wait_longer() -> None:
    weather, waits = stormy(), []
    for _ in range(4):
        now = weather.open_until
        weather.sent("lease-7")
        weather.over("lease-7")
        weather.failed(now, now, steady)
        waits.append(weather.open_until - now)
    assert waits == [4.0, 8.0, 16.0, 32.0]


def test_calls_that_were_under_way_when_it_began_make_no_wait_longer() -> None:
    weather = stormy(now=10.0)
    for _ in range(20):
        assert weather.failed(9.0, 11.0, steady) is False
    assert weather.open_until == 12.0


def test_an_answer_ends_the_storm() -> None:
    weather = stormy(now=10.0)
    weather.clear()
    assert weather.lets_through(42.0) and weather.began is None


def test_a_storm_that_another_run_has_met_begins_here_when_it_is_told() -> None:
    weather = Weather()
    weather.recall(4, 0.0, "503", 9.0)
    assert weather.lets_through(9.0)
    weather.recall(5, 12.0, "503", 10.0)
    weather.recall(6, 16.0, "503", 12.0)
    assert weather.began == 10.0 and not weather.lets_through(15.0) and weather.lets_through(16.0)
    assert weather.failed(16.0, 17.0, steady) is False and weather.open_until == 17.0 + 8.0
