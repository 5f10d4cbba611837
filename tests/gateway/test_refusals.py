"""What an agent sees, and does not see, when a provider refuses a call."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial

import anthropic
import openai
import pytest
from google.genai import errors

from agentos.http.connection import Connection, HttpRequest
from tests.gateway import scripted
from tests.gateway.harness import (
    PROVIDERS,
    Reply,
    RunningGateway,
    ask_streamed,
    ask_whole,
    gateway,
    gemini_body,
)
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
TWO_ITEMS = ("--item", "a", "--item", "b")
MESSAGE = b'{"model": "claude-haiku-4-5", "max_tokens": 9, "stream": true, "messages": []}'


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_call_refused_before_its_first_byte_is_repeated_with_another_key(
    harness: RunHarness, provider: str
) -> None:
    server = harness.server(fault={"kind": "429-minute", "nth": 1, "retry_delay": 60})
    with gateway(harness, provider=provider) as gate:
        assert ask_streamed(provider, gate.agent) and ask_whole(provider, gate.agent)
        assert [(call["key"], call["status"]) for call in server.calls()] == [
            ("key-1", 429),
            ("key-2", 200),
            ("key-2", 200),
        ]
        assert "[GATEWAY] Rate limit hit on key-1. Backing off for 60s. Redistributing work..." in gate.stderr
        gate.wait_for("after 1 refusal")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_invalid_key_is_tried_once(harness: RunHarness, provider: str) -> None:
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
def test_an_agent_is_told_that_no_usable_key_is_left(
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
def test_keys_that_cool_down_beyond_the_deadline_give_a_429_with_retry_after(
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
            delays = [detail.get("retryDelay") for detail in error.details["error"]["details"]]
            assert [30 <= int(delay.rstrip("s")) <= 40 for delay in delays] == [True]


def test_a_call_waits_for_a_short_cooldown(harness: RunHarness) -> None:
    server = harness.server(fault={"kind": "429-minute", "nth": 1, "retry_delay": 2}, keys=KEYS[:1])
    with gateway(harness) as gate:
        assert gate.ask().status == 200
        assert [call["status"] for call in server.calls()] == [429, 200]
        gate.wait_for("waited ")


@pytest.mark.slow
def test_transient_provider_errors_are_retried_and_lasting_ones_passed_on(harness: RunHarness) -> None:
    server = harness.server(fault={"kind": "503", "nth": 1})
    with gateway(harness) as gate:
        assert gate.ask().status == 200
        server.add_fault(kind="500", times=None)
        reply = gate.ask()
        assert (reply.status, reply.json["error"]["status"]) == (500, "INTERNAL")
        assert [call["status"] for call in server.calls()] == [503, 200, 500, 500, 500, 500]
        gate.wait_for("500, error passed on")
        assert "after 1 failure, " in gate.stderr and "after 4 failures" in gate.stderr
        assert "refusal" not in gate.stderr
        assert (
            "Waiting for a key: gemini gemini-2.5-pro failed; the call is repeated after a pause"
            in gate.stderr
        )


def test_a_bad_request_is_passed_on_without_a_retry(harness: RunHarness) -> None:
    server = harness.server(fault={"kind": "400", "nth": 1})
    with gateway(harness) as gate:
        assert gate.ask().json["error"]["status"] == "INVALID_ARGUMENT"
        assert gate.ask().status == 200
        assert len(server.calls()) == 2


def test_what_a_provider_does_not_implement_is_passed_on_without_a_retry(harness: RunHarness) -> None:
    calls = []

    async def respond(incoming: HttpRequest, out: Connection) -> None:
        calls.append(incoming.target)
        scripted.whole(
            out, 501, b'{"error": {"code": 501, "status": "UNIMPLEMENTED", "message": "not here"}}'
        )

    with scripted.provider(respond) as url, gateway(harness, url=url) as gate:
        reply = gate.ask()
        assert (reply.status, reply.json["error"]["message"], len(calls)) == (501, "not here", 1)


@pytest.mark.slow
def test_an_unreachable_provider_gives_a_503(harness: RunHarness) -> None:
    harness.server()
    with gateway(harness, url="http://127.0.0.1:9") as gate:
        reply = gate.ask()
        assert (reply.status, reply.json["error"]["status"]) == (503, "UNAVAILABLE")
        assert (
            "gemini failed 4 times in a row (127.0.0.1:9 refused the connection)"
            in reply.json["error"]["message"]
        )


# Streams


def test_a_stream_whose_first_event_is_an_error_is_retried(harness: RunHarness) -> None:
    seen: list[str] = []

    async def respond(incoming: HttpRequest, out: Connection) -> None:
        seen.append(dict(incoming.headers)["x-api-key"])
        await scripted.events(out, *([OVERLOADED] if len(seen) == 1 else [START, DELTA]))
        out.finish()

    reply = _ask_claude(harness, respond)[0]
    assert reply == START + DELTA
    assert seen == [KEYS[0], KEYS[1]]


def test_a_refusal_in_the_middle_of_a_stream_is_passed_on_and_starts_a_cooldown(harness: RunHarness) -> None:
    seen: list[str] = []

    async def respond(incoming: HttpRequest, out: Connection) -> None:
        seen.append(dict(incoming.headers)["x-api-key"])
        if len(seen) == 1:
            await scripted.events(out, START)
            await asyncio.sleep(0.05)
            out.put(LIMITED)
        else:
            await scripted.events(out, START, DELTA)
        out.finish()

    def then(gate: RunningGateway) -> str:
        gate.wait_for("[GATEWAY] Rate limit hit on key-1. Backing off for ")
        harness.keys = KEYS[:2]
        for _ in range(2):
            gate.call("POST", "/anthropic/v1/messages", MESSAGE, x_api_key=gate.token)
        gate.wait_for("100 tokens")
        return gate.stderr

    harness.keys = KEYS[:2]
    reply, stderr = _ask_claude(harness, respond, then)
    assert reply == START + LIMITED
    assert seen == [KEYS[0], KEYS[1], KEYS[1]]
    assert "31 tokens" in stderr


def test_a_broken_stream_is_broken_for_the_agent_too(harness: RunHarness) -> None:
    server = harness.server(fault={"kind": "reset-midway", "nth": 1})
    with gateway(harness) as gate:
        with pytest.raises(ConnectionError):
            _read_stream(gate)
        gate.wait_for("connection lost")
        assert gate.ask().status == 200
    wait_until(lambda: len(server.calls()) == 2)


def _read_stream(gate: RunningGateway) -> None:
    """Reads a stream to its end."""
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
    respond: Callable[[HttpRequest, Connection], Awaitable[None]],
    then: Callable[[RunningGateway], str] = lambda gate: gate.stderr,
) -> tuple[bytes, str]:
    with scripted.provider(respond) as url, gateway(harness, provider="anthropic", url=url) as gate:
        reply = gate.call("POST", "/anthropic/v1/messages", MESSAGE, x_api_key=gate.token)
        return reply.body, then(gate)


def test_a_model_that_no_key_may_use_gets_the_providers_own_answer_and_others_are_served(
    harness: RunHarness,
) -> None:
    async def respond(incoming: HttpRequest, out: Connection) -> None:
        forbidden = "secret-model" in incoming.target
        body = {"error": {"code": 403, "status": "PERMISSION_DENIED", "message": "ask your administrator"}}
        scripted.whole(out, 403 if forbidden else 200, json.dumps(body if forbidden else {}).encode())

    harness.keys = KEYS[:3]
    with scripted.provider(respond) as url, gateway(harness, *TWO_ITEMS, url=url) as gate:
        ask = partial(_ask_gemini, gate)
        for item in ("a", "b"):
            refused = ask(item, "secret-model")
            assert refused.status == 403 and refused.json["error"]["message"] == "ask your administrator"
        told = "may not use secret-model (403 ask your administrator)"
        wait_until(lambda: gate.stderr.count(told) == 3)
        assert ask("a", "open-model").status == 200
        again = ask("a", "secret-model")
        assert (
            again.status == 403 and "no gemini key may use secret-model (" in again.json["error"]["message"]
        )
        assert "key-1, key-2, key-3: 403 ask your administrator" in again.json["error"]["message"]


@pytest.mark.parametrize("is_served_before", [True, False], ids=["known-model", "new-model"])
def test_a_file_that_no_key_may_read_takes_neither_the_model_nor_files_from_other_agents(
    harness: RunHarness, is_served_before: bool
) -> None:
    words = "You do not have permission to access the File or it may not exist."
    asked = []

    async def respond(incoming: HttpRequest, out: Connection) -> None:
        asked.append(dict(incoming.headers)["x-goog-api-key"])
        forbidden = b"files/foreign" in incoming.body or "files/foreign" in incoming.target
        body = {"error": {"code": 403, "status": "PERMISSION_DENIED", "message": words}} if forbidden else {}
        scripted.whole(out, 403 if forbidden else 200, json.dumps(body).encode())

    harness.keys = KEYS[:3]
    with scripted.provider(respond) as url, gateway(harness, *TWO_ITEMS, url=url) as gate:
        if is_served_before:
            assert _ask_gemini(gate, "b").status == 200
        for _ in range(2):
            asked.clear()
            refused = _ask_gemini(gate, "a", text="files/foreign")
            assert refused.status == 403 and refused.json["error"]["message"] == words
            assert sorted(asked) == sorted(KEYS[:3]), "each key was asked once"
            assert _read_file(gate, "a", "foreign").json["error"]["message"] == words
            assert _read_file(gate, "b", "own").status == 200
            assert _ask_gemini(gate, "b").status == 200
        assert "may not use" not in gate.stderr


def _ask_gemini(gate: RunningGateway, item: str, model: str = "gemini-2.5-pro", text: str = "Hello") -> Reply:
    path = f"/gemini/v1beta/models/{model}:generateContent"
    return gate.call("POST", path, gemini_body(text), x_goog_api_key=gate.items[item]["GEMINI_API_KEY"])


def _read_file(gate: RunningGateway, item: str, name: str) -> Reply:
    token = gate.items[item]["GEMINI_API_KEY"]
    return gate.call("GET", f"/gemini/v1beta/files/{name}", x_goog_api_key=token)
