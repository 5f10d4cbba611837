"""The official SDKs, configured by the printed variables alone."""

import json

import pytest

from agentos.http.connection import Connection, HttpRequest
from tests.gateway.harness import (
    PROVIDERS,
    ask_streamed,
    ask_whole,
    gateway,
    with_anthropic,
    with_gemini,
    with_openai,
)
from tests.scenarios.harness import KEYS, RunHarness

from .scripted import provider as scripted_provider
from .scripted import whole


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_agent_gets_whole_and_streamed_responses_without_seeing_the_key(
    harness: RunHarness, provider: str
) -> None:
    server = harness.server()
    with gateway(harness, "--item", "writer", "--item", "critic", provider=provider) as gate:
        whole = ask_whole(provider, gate.items["writer"])
        streamed = ask_streamed(provider, gate.items["critic"])
        done = gate.wait()
    assert whole and streamed == whole
    assert [call["key"] for call in server.calls()] == ["key-1", "key-2"]
    summary = [line for line in done.err.splitlines() if line.startswith("[GATEWAY]   ")]
    assert ["writer  1 call" in summary[0], "critic  1 call" in summary[1]] == [True, True]
    assert "estimated" not in done.err
    assert not any(key in done.err + done.out for key in KEYS)


def test_listing_models_and_counting_tokens_never_wait(harness: RunHarness) -> None:
    """Even while the only key is in use, calls that run no model are forwarded."""
    harness.server("--latency", "20,20", keys=KEYS[:1])
    with gateway(harness, provider="gemini") as gate, gate.connect() as wire:
        wire.sendall(_long_call(gate.token))
        with with_gemini(gate.agent) as client:
            assert [model.name for model in client.models.list()] == ["models/offline-rules-1"]
            assert client.models.count_tokens(model="gemini-2.5-pro", contents="four word text").total_tokens
    with gateway(harness, provider="anthropic") as gate:
        messages = [{"role": "user", "content": "Some words to be counted"}]
        with with_anthropic(gate.agent) as claude:
            assert claude.models.list().data
            assert claude.messages.count_tokens(model="any", messages=messages).input_tokens  # type: ignore[arg-type]
    with gateway(harness, provider="openai") as gate, with_openai(gate.agent) as gpt:
        assert gpt.models.list().data


def test_a_stream_in_a_json_array_is_forwarded_and_counted(harness: RunHarness) -> None:
    harness.server()
    with gateway(harness) as gate:
        path = "/gemini/v1beta/models/gemini-2.5-pro:streamGenerateContent"
        reply = gate.call(
            "POST", path, b'{"contents": [{"parts": [{"text": "hi"}]}]}', x_goog_api_key=gate.token
        )
        assert reply.status == 200 and reply.json[0]["usageMetadata"]["totalTokenCount"]
        tokens = reply.json[-1]["usageMetadata"]["totalTokenCount"]
        gate.wait_for(f"{tokens} tokens, cost $")


def _long_call(token: str) -> bytes:
    body = b'{"contents": [{"parts": [{"text": "x"}]}]}'
    return (
        b"POST /gemini/v1beta/models/m:generateContent HTTP/1.1\r\nHost: localhost\r\n"
        b"x-goog-api-key: " + token.encode() + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )


def test_the_calls_of_one_agent_stay_on_one_key_and_others_use_other_keys(harness: RunHarness) -> None:
    """Providers cache prompts per account: a key that changes with every call would pay for the prefix each time."""
    server = harness.server()
    with gateway(harness, "--item", "writer", "--item", "critic") as gate:
        writer, critic = (gate.items[name]["GEMINI_API_KEY"] for name in ("writer", "critic"))
        for _ in range(5):
            assert gate.ask(x_goog_api_key=writer).status == 200
            assert gate.ask(x_goog_api_key=critic).status == 200
    keys = [call["key"] for call in server.answered()]
    assert len(set(keys[::2])) == 1 and len(set(keys[1::2])) == 1 and keys[0] != keys[1]


def test_a_file_and_the_calls_that_use_it_go_to_one_key(harness: RunHarness) -> None:
    """Uploads use no quota and no model, and still belong to the account that got them."""
    keys: list[str] = []

    async def answer(request: HttpRequest, connection: Connection) -> None:
        keys.append(dict(request.headers)["x-api-key"])
        whole(connection, 200, b'{"id": "file_1", "usage": {"input_tokens": 1, "output_tokens": 1}}')

    def call(agent: dict[str, str], path: str, model: str = "") -> None:
        body = json.dumps({"model": model} if model else {"purpose": "x"}).encode()
        assert gate.call("POST", path, body, x_api_key=agent["ANTHROPIC_API_KEY"]).status == 200

    flags = ("--item", "other", "--item", "writer")
    with scripted_provider(answer) as url, gateway(harness, *flags, provider="anthropic", url=url) as gate:
        call(gate.items["other"], "/anthropic/v1/messages", "a-model")
        keys.clear()
        call(gate.items["writer"], "/anthropic/v1/files")
        for model in ("a-model", "b-model", "a-model"):
            call(gate.items["writer"], "/anthropic/v1/messages", model)
        call(gate.items["writer"], "/anthropic/v1/messages/batches")
        call(gate.items["writer"], "/anthropic/v1/files")
    assert len(keys) == 6 and set(keys) == {keys[0]}
