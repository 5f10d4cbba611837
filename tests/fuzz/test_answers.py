"""Whatever a provider sends, a vendor's client returns a response or raises one of its two errors."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentos.core.errors import BadRequest, CallRefused
from agentos.core.protocol.ports import LeasedKey, ModelRequest, ModelResponse, Provider
from agentos.http.connection import Connection, HttpRequest
from tests.gateway.scripted import provider, whole
from tests.models.test_providers import VENDORS, close_clients

EXAMPLES = 60
WHOLE = {
    "gemini": {
        "candidates": [{"content": {"role": "model", "parts": [{"text": "a"}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 2, "thoughtsTokenCount": 3},
        "modelVersion": "m",
    },
    "anthropic": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "a"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 2},
    },
    "openai": {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "a"}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    },
}
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**25), 10**25),
    st.floats(),
    st.text(max_size=5),
    st.just([]),
    st.just({}),
    st.lists(st.none() | st.text(max_size=2), max_size=2),
    st.dictionaries(st.sampled_from(["0", "text", "type", "content"]), st.integers(), max_size=2),
)


@st.composite
def corrupted(draw: st.DrawFn, vendor: str) -> bytes:
    """A valid response with some values replaced or removed, or arbitrary bytes."""
    if draw(st.integers(0, 5)) == 0:
        return draw(st.one_of(st.binary(max_size=60), ODD.map(json.dumps).map(str.encode)))
    answer = json.loads(json.dumps(WHOLE[vendor]))
    for _ in range(draw(st.integers(1, 2))):
        place, name = draw(st.sampled_from(list(_places(answer))))
        if draw(st.booleans()):
            place[name] = draw(ODD)
        elif isinstance(place, dict):
            place.pop(name, None)
    return json.dumps(answer).encode()


def _places(value: object) -> Iterator[tuple[Any, Any]]:
    """Every container with each of its keys."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in list(inner):
        yield value, name
        yield from _places(one)


@dataclass
class Caller:
    """A vendor's client and a server that sends the given body."""

    vendor: str
    client: Provider
    url: str
    runner: asyncio.Runner
    body_to_send: list[bytes]

    def receive(self, body: bytes) -> ModelResponse:
        self.body_to_send[0] = body
        access = LeasedKey("key-1", "secret", self.url, "m")
        return self.runner.run(self.client.complete(ModelRequest("drafter", "write"), access))

    def check(self, body: bytes) -> None:
        with contextlib.suppress(CallRefused, BadRequest):
            answer = self.receive(body)
            assert isinstance(answer.text, str) and answer.text and isinstance(answer.model, str)
            spent = (answer.usage.input_tokens, answer.usage.output_tokens)
            assert all(type(count) is int and count >= 0 for count in spent), spent


@pytest.fixture(scope="module", params=VENDORS)
def caller(request: pytest.FixtureRequest) -> Iterator[Caller]:
    body_to_send = [b""]

    async def act(incoming: HttpRequest, out: Connection) -> None:
        whole(out, 200, body_to_send[0])

    with provider(act) as url, asyncio.Runner() as runner:
        client = VENDORS[request.param]()
        yield Caller(request.param, client, url, runner, body_to_send)
        runner.run(close_clients(client))


@given(data=st.data())
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_response_is_an_answer_or_one_of_our_errors(caller: Caller, data: st.DataObject) -> None:
    caller.check(data.draw(corrupted(caller.vendor)))


def test_a_valid_response_is_accepted(caller: Caller) -> None:
    found = caller.receive(json.dumps(WHOLE[caller.vendor]).encode())
    assert (found.text, found.model, found.usage.input_tokens) == ("a", "m", 1)
