"""A provider that fails for everybody."""

from agentos.core.storm import Weather

from .making import steady


def stormy(now: float = 0.0) -> Weather:
    weather = Weather()
    assert [weather.failed(now, steady) for _ in range(5)] == [False, False, False, False, True]
    return weather


def test_five_failures_in_a_row_are_a_storm_and_it_is_said_once() -> None:
    weather = stormy()
    assert not weather.lets_through(1.0)
    assert weather.failed(1.0, steady) is False


def test_an_answer_in_between_begins_the_count_anew() -> None:
    weather = Weather()
    for _ in range(4):
        weather.failed(0.0, steady)
    assert weather.answered(1.0) is None
    assert weather.failed(2.0, steady) is False
    assert weather.lets_through(2.0)


def test_one_call_at_a_time_looks_whether_the_storm_is_over() -> None:
    weather = stormy()
    assert weather.open_until == 2.0 and weather.lets_through(2.0)
    weather.sent()
    assert not weather.lets_through(100.0)


def test_each_look_in_vain_makes_the_next_wait_longer() -> None:
    weather, waits = stormy(), []
    for _ in range(4):
        now = weather.open_until
        weather.sent()
        weather.failed(now, steady)
        waits.append(weather.open_until - now)
    assert waits == [4.0, 8.0, 16.0, 32.0]


def test_an_answer_ends_the_storm_and_says_how_long_it_was() -> None:
    weather = stormy(now=10.0)
    assert weather.answered(42.0) == 32.0
    assert weather.lets_through(42.0) and weather.began is None
