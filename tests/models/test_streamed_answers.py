"""Answers arrive as streams: cut only between tokens, with their finish reason, and paid for whatever becomes of them."""

import asyncio
import json
from typing import Any

import pytest

from agentos.core.errors import BadRequest, EmptyAnswer, ItemError
from agentos.core.protocol.ports import ModelRequest, ModelResponse
from agentos.core.protocol.results import FinishReason, Usage
from agentos.core.ratelimit.refusals import RefusalKind
from agentos.http.connection import Connection, HttpRequest
from agentos.models.client_base import MAX_BROKEN_CONNECTIONS
from agentos.models.warmup import event_stream
from tests.gateway.scripted import events, whole
from tests.models.streams import (
    INPUT_TOKENS,
    LENGTH,
    OUTPUT_TOKENS,
    STOP,
    LeasedWorker,
    end_events,
    leased_worker,
    send_events,
    sent_body,
    start_events,
    text_event,
    whole_stream,
)
from tests.models.test_providers import VENDORS

REQUEST = ModelRequest("drafter", "write", system="rules", context=("shared", "issue"))
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"list": {"type": "array", "maxItems": 7, "items": {"type": "string"}}},
        "required": ["list"],
    }
)


@pytest.fixture(params=VENDORS)
def vendor(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def ask(vendor: str, *bodies: bytes, **role: Any) -> tuple[ModelResponse, LeasedWorker]:
    """Asks a server that sends these event streams, one per call, the last one again and again."""
    waiting = list(bodies)

    async def act(incoming: HttpRequest, out: Connection) -> None:
        send_events(out, waiting.pop(0) if len(waiting) > 1 else waiting[0])

    with leased_worker(vendor, act, **role) as session:
        return session.ask(REQUEST), session.worker


# The timeout is between tokens


def test_a_slow_answer_is_whole_while_tokens_come(vendor: str) -> None:
    async def act(incoming: HttpRequest, out: Connection) -> None:
        await events(out, start_events(vendor))
        for text in ("one ", "two ", "three ", "four"):
            await asyncio.sleep(0.3)
            out.put(text_event(vendor, text))
            await out.flush()
        out.put(end_events(vendor, STOP[vendor]))
        out.finish()

    with leased_worker(vendor, act, call_timeout=0.9) as session:
        assert session.ask(REQUEST).text == "one two three four"
        assert [event.refusal for event in session.worker.released] == [None]


def test_an_answer_that_is_cut_twice_fails_with_the_fix_and_its_tokens_are_counted(vendor: str) -> None:
    async def act(incoming: HttpRequest, out: Connection) -> None:
        await events(out, start_events(vendor), text_event(vendor, "x" * 400))
        await asyncio.get_running_loop().create_future()

    with leased_worker(vendor, act, call_timeout=0.9) as session:
        with pytest.raises(ItemError) as caught:
            session.ask(REQUEST)
        cuts = session.worker.released
    assert "cut off 2 times in a row (no token for 0.9 s, after 100 tokens" in str(caught.value)
    assert any("call_timeout = 900 for key-1" in line for line in caught.value.details)
    assert [event.refusal and event.refusal.kind for event in cuts] == [RefusalKind.CUT] * 2
    assert all(event.usage.calls == 1 and event.usage.output_tokens == 100 for event in cuts)
    assert all(event.usage.input_tokens for event in cuts)


def test_one_cut_is_asked_again(vendor: str) -> None:
    calls: list[HttpRequest] = []

    async def act(incoming: HttpRequest, out: Connection) -> None:
        calls.append(incoming)
        if len(calls) == 1:
            await asyncio.get_running_loop().create_future()
        send_events(out, whole_stream(vendor, ["done"], STOP[vendor]))

    with leased_worker(vendor, act, call_timeout=0.5) as session:
        assert session.ask(REQUEST).text == "done"
        assert session.worker.released[0].usage == Usage()


def test_a_stream_that_breaks_off_is_a_provider_error_whose_tokens_are_counted(vendor: str) -> None:
    broken = start_events(vendor) + text_event(vendor, "x" * 40)
    answer, worker = ask(vendor, broken, whole_stream(vendor, ["done"], STOP[vendor]))
    assert answer.text == "done"
    refusal = worker.released[0].refusal
    assert refusal and refusal.kind is RefusalKind.PROVIDER_ERROR and "ended before" in refusal.reason
    assert worker.released[0].usage.output_tokens == 10


# Why an answer ended


@pytest.mark.parametrize(
    ("vendor", "word", "finish"),
    [
        ("gemini", "STOP", FinishReason.STOP),
        ("gemini", "MAX_TOKENS", FinishReason.LENGTH),
        ("gemini", "SAFETY", FinishReason.FILTERED),
        ("gemini", "RECITATION", FinishReason.FILTERED),
        ("gemini", "MALFORMED_FUNCTION_CALL", FinishReason.OTHER),
        ("anthropic", "end_turn", FinishReason.STOP),
        ("anthropic", "max_tokens", FinishReason.LENGTH),
        ("anthropic", "model_context_window_exceeded", FinishReason.LENGTH),
        ("anthropic", "refusal", FinishReason.FILTERED),
        ("anthropic", "pause_turn", FinishReason.PAUSED),
        ("openai", "stop", FinishReason.STOP),
        ("openai", "length", FinishReason.LENGTH),
        ("openai", "content_filter", FinishReason.FILTERED),
        ("openai", "tool_calls", FinishReason.OTHER),
    ],
)
def test_the_finish_reason_is_part_of_the_answer(vendor: str, word: str, finish: FinishReason) -> None:
    answer, _ = ask(vendor, whole_stream(vendor, ["half a ", "draft"], word))
    assert (answer.text, answer.finish, answer.finish_detail) == ("half a draft", finish, word)
    assert answer.usage == Usage(1, INPUT_TOKENS, OUTPUT_TOKENS)


CACHE_USAGE: dict[str, list[dict[str, Any]]] = {
    "gemini": [
        {
            "candidates": [{"finishReason": "STOP"}],
            "usageMetadata": {
                "promptTokenCount": 90,
                "cachedContentTokenCount": 60,
                "candidatesTokenCount": 5,
            },
        }
    ],
    "anthropic": [
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {
                "input_tokens": 10,
                "cache_read_input_tokens": 60,
                "cache_creation_input_tokens": 20,
                "output_tokens": 5,
            },
        },
        {"type": "message_stop"},
    ],
    "openai": [
        {
            "id": "1",
            "model": "m",
            "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
            "usage": {
                "prompt_tokens": 90,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 20},
            },
        }
    ],
}


def test_cache_reads_and_writes_are_part_of_the_usage(vendor: str) -> None:
    stream = start_events(vendor) + text_event(vendor, "text") + event_stream(CACHE_USAGE[vendor])
    answer, _ = ask(vendor, stream)
    written = 0 if vendor == "gemini" else 20
    assert answer.usage == Usage(1, 90, 5, cache_read_tokens=60, cache_write_tokens=written)


def test_an_empty_answer_costs_what_it_costs(vendor: str) -> None:
    async def act(incoming: HttpRequest, out: Connection) -> None:
        send_events(out, whole_stream(vendor, [], LENGTH[vendor]))

    with leased_worker(vendor, act) as session:
        with pytest.raises(EmptyAnswer, match=f"finish reason: {LENGTH[vendor]}") as caught:
            session.ask(REQUEST)
        assert session.worker.released[0].usage == Usage(1, INPUT_TOKENS, OUTPUT_TOKENS)
    assert caught.value.finish == FinishReason.LENGTH


# What is sent


def sent_for(vendor: str, request: ModelRequest, **role: Any) -> dict[str, Any]:
    seen: list[bytes] = []

    async def act(incoming: HttpRequest, out: Connection) -> None:
        seen.append(incoming.body)
        send_events(out, whole_stream(vendor, ["done"], STOP[vendor]))

    with leased_worker(vendor, act, **role) as session:
        session.ask(request)
    return sent_body(seen[0])


def test_the_roles_output_limit_is_sent(vendor: str) -> None:
    sent = sent_for(vendor, REQUEST, max_output_tokens=1234)
    limit = sent["generationConfig"]["maxOutputTokens"] if vendor == "gemini" else sent["max_tokens"]
    assert limit == 1234


def test_rules_are_the_system_message_and_stable_text_comes_first(vendor: str) -> None:
    sent = sent_for(vendor, REQUEST)
    match vendor:
        case "gemini":
            assert sent["systemInstruction"]["parts"] == [{"text": "rules"}]
            assert sent["contents"][0]["parts"] == [{"text": "shared\n\nissue\n\nwrite"}]
        case "openai":
            assert [message["role"] for message in sent["messages"]] == ["system", "user"]
            assert sent["messages"][1]["content"] == "shared\n\nissue\n\nwrite"
        case "anthropic":
            cached = {"cache_control": {"type": "ephemeral"}}
            assert sent["system"] == [{"type": "text", "text": "rules", **cached}]
            shared, issue, last = sent["messages"][0]["content"]
            assert shared["text"] == "shared" and shared["cache_control"] == cached["cache_control"]
            assert issue["text"] == "issue" and "cache_control" in issue
            assert last == {"type": "text", "text": "write"}


def test_the_effort_of_the_role_is_sent(vendor: str) -> None:
    sent = sent_for(vendor, REQUEST, effort="low")
    places = {
        "gemini": lambda: sent["generationConfig"]["thinkingConfig"]["thinking_level"].lower(),
        "anthropic": lambda: sent["output_config"]["effort"],
        "openai": lambda: sent["reasoning_effort"],
    }
    assert places[vendor]() == "low"


def test_an_effort_in_tokens_is_a_budget_for_thinking() -> None:
    assert sent_for("gemini", REQUEST, effort="2048")["generationConfig"]["thinkingConfig"] == {
        "thinking_budget": 2048
    }
    assert sent_for("anthropic", REQUEST, effort="2048")["thinking"] == {
        "type": "enabled",
        "budget_tokens": 2048,
    }


def test_the_schema_is_sent_as_the_vendor_accepts_it(vendor: str) -> None:
    sent = sent_for(vendor, ModelRequest("drafter", "review", SCHEMA))
    match vendor:
        case "openai":
            schema = sent["response_format"]["json_schema"]
            assert schema["strict"] is True and schema["schema"]["additionalProperties"] is False
            assert schema["schema"]["properties"]["list"]["maxItems"] == 7
        case "anthropic":
            listed = sent["output_config"]["format"]["schema"]["properties"]["list"]
            assert "maxItems" not in listed and listed["description"] == "At most 7 entries."
        case "gemini":
            assert sent["generationConfig"]["responseJsonSchema"]["properties"]["list"]["maxItems"] == 7


def test_openais_own_hosts_get_the_new_name_of_the_limit() -> None:
    from agentos.models.openai.client import _limit_name

    assert _limit_name(None) == _limit_name("https://x.openai.azure.com/v1") == "max_completion_tokens"
    assert _limit_name("http://127.0.0.1:8080/v1") == _limit_name("https://notopenai.com") == "max_tokens"


# Errors


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"detail": "model 'm' is not loaded"}, "model 'm' is not loaded"),
        (
            {"detail": [{"loc": ["body", "max_tokens"], "msg": "must be at most 512"}]},
            "body.max_tokens: must be at most 512",
        ),
        ({"error": "no such template"}, "no such template"),
        ({"message": "too long"}, "too long"),
    ],
)
def test_an_error_shows_the_servers_sentence(vendor: str, body: object, sentence: str) -> None:
    async def act(incoming: HttpRequest, out: Connection) -> None:
        whole(out, 422, json.dumps(body).encode())

    with leased_worker(vendor, act) as session, pytest.raises(BadRequest) as caught:
        session.ask(REQUEST)
    assert sentence in str(caught.value) and "422" in str(caught.value)


def test_the_same_5xx_three_times_while_others_are_answered_fails_the_item_with_its_body(vendor: str) -> None:
    async def act(incoming: HttpRequest, out: Connection) -> None:
        body = {"error": {"message": "context does not fit, request 0a1b2c3d", "type": "server_error"}}
        whole(out, 500, json.dumps(body).encode())

    with leased_worker(vendor, act) as session:
        session.worker.others_answer = True
        with pytest.raises(ItemError, match="context does not fit"):
            session.ask(REQUEST)
        assert len(session.worker.released) == 3


def test_refused_connections_are_never_the_calls_fault(vendor: str) -> None:
    async def act(incoming: HttpRequest, out: Connection) -> None:
        send_events(out, whole_stream(vendor, ["done"], STOP[vendor]))

    with leased_worker(vendor, act) as session:
        session.worker.others_answer, session.worker.leases_without_server = True, 4
        assert session.ask(REQUEST).text == "done"
        reasons = [released.refusal.reason for released in session.worker.released if released.refusal]
        assert reasons == ["127.0.0.1 refused the connection"] * 4


def test_connections_that_break_are_blamed_on_the_call_only_after_many(vendor: str) -> None:
    """A gateway that restarts now and then breaks a few; a prompt that crashes the server breaks all."""
    calls: list[HttpRequest] = []

    async def act(incoming: HttpRequest, out: Connection) -> None:
        calls.append(incoming)
        if len(calls) in (5, 6):
            send_events(out, whole_stream(vendor, ["done"], STOP[vendor]))
        else:
            out.reset()

    with leased_worker(vendor, act) as session:
        session.worker.others_answer = True
        assert session.ask(REQUEST).text == "done" and len(calls) == 5
        assert session.ask(REQUEST).text == "done" and len(calls) == 6
        with pytest.raises(ItemError, match="fails this call but answers others"):
            session.ask(REQUEST)
        assert len(calls) == 6 + MAX_BROKEN_CONNECTIONS


def test_the_same_5xx_for_everybody_is_the_providers_trouble(vendor: str) -> None:
    calls: list[HttpRequest] = []

    async def act(incoming: HttpRequest, out: Connection) -> None:
        calls.append(incoming)
        if len(calls) <= 4:
            whole(out, 500, b'{"error": {"message": "internal", "type": "server_error"}}')
        else:
            send_events(out, whole_stream(vendor, ["done"], STOP[vendor]))

    with leased_worker(vendor, act) as session:
        assert session.ask(REQUEST).text == "done"


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("/home/me/models/secret-project/SmolLM2.Q4.gguf", "SmolLM2.Q4.gguf"),
        ("C:\\models\\tiny.gguf", "tiny.gguf"),
        ("models/tiny.gguf", "tiny.gguf"),
        ("meta-llama/llama-3", "meta-llama/llama-3"),
        ("m", "m"),
    ],
)
def test_a_local_path_is_not_the_name_of_a_model(vendor: str, name: str, label: str) -> None:
    answer, worker = ask(vendor, whole_stream(vendor, ["done"], STOP[vendor], name))
    assert (answer.model, worker.released[0].model) == (label, label)
