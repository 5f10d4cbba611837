"""Conversations with tools, in the format of each vendor."""

import json
from typing import Any

import pytest

from agentos.core.protocol.ports import ChatTurn, ModelRequest, ModelResponse, ToolCall, ToolSpec
from agentos.http.connection import Connection, HttpRequest
from agentos.models.warmup import event_stream
from tests.models.streams import end_events, leased_worker, send_events, sent_body, start_events, text_event
from tests.models.test_providers import VENDORS

SEARCH = ToolSpec(
    "search", "Searches.", json.dumps({"type": "object", "properties": {"q": {"type": "string"}}})
)
REQUEST = ModelRequest(
    "drafter",
    system="rules",
    turns=(
        ChatTurn("user", "When did it snow?"),
        ChatTurn("assistant", "", (ToolCall("c1", "search", '{"q": "snow"}', "c2ln"),)),
        ChatTurn("tool", "in May", call_id="c1", tool="search"),
    ),
    tools=(SEARCH,),
    tool_choice="search",
    temperature=0.5,
    stop=("END",),
)
FINISHES = {"gemini": "STOP", "anthropic": "tool_use", "openai": "tool_calls"}


def call_events(vendor: str) -> bytes:
    """A tool call, with its arguments in two pieces where the vendor sends pieces."""
    match vendor:
        case "gemini":
            part = {"functionCall": {"name": "search", "args": {"q": "rain"}}, "thoughtSignature": "c2ln"}
            return event_stream([{"candidates": [{"content": {"role": "model", "parts": [part]}}]}])
        case "anthropic":
            block = {"type": "tool_use", "id": "t1", "name": "search", "input": {}}
            pieces = [{"type": "input_json_delta", "partial_json": text} for text in ('{"q": ', '"rain"}')]
            deltas = [{"type": "content_block_delta", "index": 1, "delta": piece} for piece in pieces]
            start = {"type": "content_block_start", "index": 1, "content_block": block}
            return event_stream([start, *deltas, {"type": "content_block_stop", "index": 1}])
        case _:
            first = {
                "index": 0,
                "id": "t1",
                "type": "function",
                "function": {"name": "search", "arguments": '{"q": '},
            }
            second = {"index": 0, "function": {"arguments": '"rain"}'}}
            chunks = [{"index": 0, "delta": {"tool_calls": [call]}} for call in (first, second)]
            return event_stream([{"id": "1", "model": "m", "choices": [chunk]} for chunk in chunks])


def converse(
    vendor: str, *events: bytes, request: ModelRequest = REQUEST
) -> tuple[ModelResponse, dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def act(incoming: HttpRequest, out: Connection) -> None:
        sent.append(sent_body(incoming.body))
        send_events(out, start_events(vendor) + b"".join(events) + end_events(vendor, FINISHES[vendor]))

    with leased_worker(vendor, act) as session:
        return session.ask(request), sent[0]


@pytest.fixture(params=VENDORS)
def vendor(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def test_tool_calls_are_read_whole(vendor: str) -> None:
    response, _ = converse(vendor, text_event(vendor, "Let me see."), call_events(vendor))
    [call] = response.tool_calls
    assert response.text == "Let me see." and response.finish == "stop"
    assert (call.name, json.loads(call.arguments)) == ("search", {"q": "rain"})
    assert call.id == "t1" or (vendor == "gemini" and call.id.startswith("call_"))
    assert call.signature == ("c2ln" if vendor == "gemini" else "")


def test_an_answer_of_tool_calls_alone_is_not_empty(vendor: str) -> None:
    response, _ = converse(vendor, call_events(vendor))
    assert response.text == "" and len(response.tool_calls) == 1


def test_a_conversation_with_tools_is_sent_in_the_format_of_the_vendor(vendor: str) -> None:
    _, sent = converse(vendor, text_event(vendor, "In May."))
    text = json.dumps(sent)
    for word in ("rules", "When did it snow?", "in May", "Searches.", "END", "0.5"):
        assert word in text
    match vendor:
        case "gemini":
            user, model, tool = sent["contents"]
            assert (user["role"], model["role"], tool["role"]) == ("user", "model", "user")
            assert model["parts"][0]["functionCall"]["args"] == {"q": "snow"}
            assert model["parts"][0]["thoughtSignature"] == "c2ln"
            assert tool["parts"][0]["functionResponse"]["response"] == {"result": "in May"}
            calling = sent["toolConfig"]["functionCallingConfig"]
            assert calling == {"mode": "ANY", "allowedFunctionNames": ["search"]}
        case "anthropic":
            _user, model, tool = sent["messages"]
            assert model["content"] == [
                {"type": "tool_use", "id": "c1", "name": "search", "input": {"q": "snow"}}
            ]
            assert tool["content"] == [{"type": "tool_result", "tool_use_id": "c1", "content": "in May"}]
            assert sent["tool_choice"] == {"type": "tool", "name": "search"}
        case "openai":
            _system, _user, model, tool = sent["messages"]
            assert model["tool_calls"][0]["function"] == {"name": "search", "arguments": '{"q": "snow"}'}
            assert tool == {"role": "tool", "content": "in May", "tool_call_id": "c1"}
            assert sent["tool_choice"] == {"type": "function", "function": {"name": "search"}}
