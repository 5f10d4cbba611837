"""What an agent sees, and what it does not, when a provider says no."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import anthropic
import openai
import pytest
from google.genai import errors

from agentos.http.connection import Connection, HttpRequest
from tests.gateway import scripted
from tests.gateway.staging import PROVIDERS, Gate, ask_streamed, ask_whole, gateway
from tests.scenarios.harness import KEYS, RunHarness, wait_until

OVERLOADED = (
    b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "x"}}\n\n'
)
LIMITED = b'event: error\ndata: {"type": "error", "error": {"type": "rate_limit_error", "message": "x"}}\n\n'
START = (
    b'event: message_start\ndata: {"type": "message_start", "message": {"id": "m", "type": "message", "role": '
    b'"assistant", "model": "c", "content": [], "stop_reason": null, "stop_sequence": null, "usage": '
    b'{"input_tokens": 30, "output_tokens": 1}}}\n\n'
)
DELTA = (
    b'event: message_delta\ndata: {"type": "message_delta", "delta": {"stop_reason": "end_turn", '
    b'"stop_sequence": null}, "usage": {"output_tokens": 70}}\n\nevent: message_stop\ndata: {"type": "message_stop"}\n\n'
)
MESSAGE = b'{"model": "claude-haiku-4-5", "max_tokens": 9, "stream": true, "messages": []}'


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_call_that_is_refused_before_its_first_byte_goes_to_another_key(
    harness: RunHarness, provider: str
) -> None:
    server = harness.server(fault={"kind": "429-minute", "nth": 1, "retry_delay": 60})
    with gateway(harness, provider=provider) as gate:
        assert ask_streamed(provider, gate.agent) and ask_whole(provider, gate.agent)
        assert [(call["key"], call["status"]) for call in server.calls()] == [
            ("key-1", 429),
            ("key-2", 200),
            ("key-3", 200),
        ]
        assert "[GATEWAY] Rate limit hit on key-1. Backing off for 60s. Redistributing work..." in gate.said
        gate.wait_for("after 1 refusal")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_dead_key_is_tried_once(harness: RunHarness, provider: str) -> None:
    server = harness.server(fault={"kind": "400-key", "key": "key-1", "times": None}, keys=KEYS[:2])
    with gateway(harness, provider=provider) as gate:
        for _ in range(3):
            assert ask_whole(provider, gate.agent)
        assert [call["key"] for call in server.calls()] == ["key-1", "key-2", "key-2", "key-2"]


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        ("gemini", errors.ClientError),
        ("anthropic", anthropic.PermissionDeniedError),
        ("openai", openai.PermissionDeniedError),
    ],
)
def test_without_a_living_key_the_agent_is_told_so(
    harness: RunHarness, provider: str, expected: type[Exception]
) -> None:
    harness.server(fault={"kind": "401", "times": None}, keys=KEYS[:1])
    with (
        gateway(harness, provider=provider) as gate,
        pytest.raises(expected, match=r"no usable \w+ key \(key-1: 401 unauthorised\)"),
    ):
        ask_whole(provider, gate.agent)


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        ("gemini", errors.ClientError),
        ("anthropic", anthropic.RateLimitError),
        ("openai", openai.RateLimitError),
    ],
)
def test_keys_that_rest_for_too_long_are_a_429_with_the_time(
    harness: RunHarness, provider: str, expected: type[Exception]
) -> None:
    harness.server(fault={"kind": "429-minute", "times": None, "retry_delay": 40}, keys=KEYS[:2])
    with gateway(harness, "--max-wait", "5s", provider=provider) as gate:
        with pytest.raises(expected, match="key-1 is the first available") as caught:
            ask_whole(provider, gate.agent)
        error = caught.value
        response = getattr(error, "response", None)
        assert response is not None and 30 <= int(response.headers["retry-after"]) <= 40
        if isinstance(error, errors.ClientError):
            delays = [one.get("retryDelay") for one in error.details["error"]["details"]]
            assert [30 <= int(delay.rstrip("s")) <= 40 for delay in delays] == [True]


def test_keys_that_rest_shortly_are_waited_for(harness: RunHarness) -> None:
    server = harness.server(fault={"kind": "429-minute", "nth": 1, "retry_delay": 2}, keys=KEYS[:1])
    with gateway(harness) as gate:
        assert gate.ask().status == 200
        assert [call["status"] for call in server.calls()] == [429, 200]
        gate.wait_for("waited ")


@pytest.mark.slow
def test_trouble_that_passes_is_hidden_and_trouble_that_stays_is_passed_on(harness: RunHarness) -> None:
    server = harness.server(fault={"kind": "503", "nth": 1})
    with gateway(harness) as gate:
        assert gate.ask().status == 200
        server.add_fault(kind="500", times=None)
        reply = gate.ask()
        assert (reply.status, reply.json["error"]["status"]) == (500, "INTERNAL")
        assert [call["status"] for call in server.calls()] == [503, 200, 500, 500, 500, 500]
        gate.wait_for("500, error passed on")


def test_a_bad_request_is_the_agents_own(harness: RunHarness) -> None:
    server = harness.server(fault={"kind": "400", "nth": 1})
    with gateway(harness) as gate:
        assert gate.ask().json["error"]["status"] == "INVALID_ARGUMENT"
        assert gate.ask().status == 200
        assert len(server.calls()) == 2


@pytest.mark.slow
def test_a_provider_that_cannot_be_reached_is_named(harness: RunHarness) -> None:
    harness.server()
    with gateway(harness, url="http://127.0.0.1:9") as gate:
        reply = gate.ask()
        assert (reply.status, reply.json["error"]["status"]) == (503, "UNAVAILABLE")
        assert "gemini failed 4 times in a row (no response: ConnectError)" in reply.json["error"]["message"]


# Streams.


def test_a_stream_that_begins_with_an_error_has_not_begun(harness: RunHarness) -> None:
    seen: list[str] = []

    async def act(incoming: HttpRequest, out: Connection) -> None:
        seen.append(dict(incoming.headers)["x-api-key"])
        await scripted.events(out, *([OVERLOADED] if len(seen) == 1 else [START, DELTA]))
        out.finish()

    reply = _ask_claude(harness, act)[0]
    assert reply == START + DELTA
    assert seen == [KEYS[0], KEYS[1]]


def test_a_refusal_in_the_middle_of_a_stream_is_passed_on_and_the_bucket_rests(harness: RunHarness) -> None:
    seen: list[str] = []

    async def act(incoming: HttpRequest, out: Connection) -> None:
        seen.append(dict(incoming.headers)["x-api-key"])
        if len(seen) == 1:
            await scripted.events(out, START)
            await asyncio.sleep(0.05)
            out.put(LIMITED)
        else:
            await scripted.events(out, START, DELTA)
        out.finish()

    def then(gate: Gate) -> str:
        gate.wait_for("[GATEWAY] Rate limit hit on key-1. Backing off for 60s.")
        harness.keys = KEYS[:2]
        for _ in range(2):
            gate.call("POST", "/anthropic/v1/messages", MESSAGE, x_api_key=gate.token)
        gate.wait_for("100 tokens")
        return gate.said

    harness.keys = KEYS[:2]
    reply, said = _ask_claude(harness, act, then)
    assert reply == START + LIMITED
    assert seen == [KEYS[0], KEYS[1], KEYS[1]]
    assert "31 tokens" in said


def test_a_stream_that_breaks_is_broken_for_the_agent_too(harness: RunHarness) -> None:
    server = harness.server(fault={"kind": "reset-midway", "nth": 1})
    with gateway(harness) as gate:
        with pytest.raises(ConnectionError):
            _read_stream(gate)
        gate.wait_for("connection lost")
        assert gate.ask().status == 200
    wait_until(lambda: len(server.calls()) == 2)


def _read_stream(gate: Gate) -> None:
    """To its end, if it has one."""
    body = json.dumps({"contents": [{"parts": [{"text": "x"}]}]}).encode()
    head = (
        "POST /gemini/v1beta/models/m:streamGenerateContent?alt=sse HTTP/1.1\r\nHost: localhost\r\n"
        f"x-goog-api-key: {gate.token}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    with gate.connect() as wire:
        wire.sendall(head.encode() + body)
        while wire.recv(65536):
            pass


def _ask_claude(
    harness: RunHarness,
    act: Callable[[HttpRequest, Connection], Awaitable[None]],
    then: Callable[[Gate], str] = lambda gate: gate.said,
) -> tuple[bytes, str]:
    with scripted.provider(act) as url, gateway(harness, provider="anthropic", url=url) as gate:
        reply = gate.call("POST", "/anthropic/v1/messages", MESSAGE, x_api_key=gate.token)
        return reply.body, then(gate)
