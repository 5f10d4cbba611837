"""Places in the queue of a gateway: kept by what a call is, not by who holds a connection."""

from agentos.gateway.places import KEPT_FOR, Places
from agentos.gateway.request_parser import ProxyRequest, parse_request
from agentos.http.connection import HttpRequest


def request(body: bytes, token: str = "t") -> ProxyRequest:
    headers = (("host", "localhost"), ("x-goog-api-key", token))
    found = parse_request(HttpRequest("POST", "/gemini/v1beta/models/m:generateContent", headers, body))
    assert found
    return found


def test_a_call_that_comes_back_has_the_place_of_its_first_try() -> None:
    now = 100.0
    places = Places(lambda: now)
    assert places.take(request(b"{}")) is None
    places.keep(request(b"{}"), 40.0, 1.0)
    assert places.take(request(b"other")) is None
    assert places.take(request(b"{}", "somebody else")) is None
    assert places.take(request(b"{}")) == 40.0
    assert places.take(request(b"{}")) is None


def test_two_calls_that_are_alike_have_two_places() -> None:
    places = Places(lambda: 100.0)
    places.keep(request(b"{}"), 50.0, 1.0)
    places.keep(request(b"{}"), 40.0, 1.0)
    assert [places.take(request(b"{}")) for _ in range(3)] == [40.0, 50.0, None]


def test_a_place_is_not_kept_forever() -> None:
    now = 100.0
    places = Places(lambda: now)
    places.keep(request(b"{}"), 40.0, 1.0)
    now += KEPT_FOR + 1.0
    assert places.take(request(b"{}")) is None
