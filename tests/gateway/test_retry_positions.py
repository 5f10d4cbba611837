"""RetryPositions in the queue of a gateway: kept by what a call is, not by who holds a connection."""

from agentos.gateway.request_parser import ProxyRequest, parse_request
from agentos.gateway.retry_positions import POSITION_TTL, RetryPositions
from agentos.http.connection import HttpRequest


def request(body: bytes, token: str = "t") -> ProxyRequest:
    headers = (("host", "localhost"), ("x-goog-api-key", token))
    found = parse_request(HttpRequest("POST", "/gemini/v1beta/models/m:generateContent", headers, body))
    assert found
    return found


def test_a_call_that_comes_back_has_the_place_of_its_first_try() -> None:
    now = 100.0
    positions = RetryPositions(lambda: now)
    assert positions.take(request(b"{}")) is None
    positions.keep(request(b"{}"), 40.0, 1.0)
    assert positions.take(request(b"other")) is None
    assert positions.take(request(b"{}", "somebody else")) is None
    assert positions.take(request(b"{}")) == 40.0
    assert positions.take(request(b"{}")) is None


def test_two_calls_that_are_alike_have_two_places() -> None:
    positions = RetryPositions(lambda: 100.0)
    positions.keep(request(b"{}"), 50.0, 1.0)
    positions.keep(request(b"{}"), 40.0, 1.0)
    assert [positions.take(request(b"{}")) for _ in range(3)] == [40.0, 50.0, None]


def test_a_place_is_not_kept_forever() -> None:
    now = 100.0
    positions = RetryPositions(lambda: now)
    positions.keep(request(b"{}"), 40.0, 1.0)
    now += POSITION_TTL + 1.0
    assert positions.take(request(b"{}")) is None
