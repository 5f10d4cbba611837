"""The pieces of a streamed answer: as the provider sends them, sanitized like the whole, and cut only with an error."""

import asyncio
import json
import threading
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentos.core.errors import StreamCut
from agentos.core.protocol.ports import AnswerPiece, ChatTurn, ModelRequest, ToolSpec
from agentos.core.text.secrets import Redactor, Secret
from agentos.http.connection import Connection, HttpRequest
from agentos.models.sanitize import PieceSanitizer, _storable
from agentos.models.warmup import event_stream
from tests.gateway.scripted import events
from tests.models.streams import (
    OUTPUT_TOKENS,
    STOP,
    end_events,
    leased_worker,
    send_events,
    start_events,
    text_event,
    whole_stream,
)
from tests.models.test_providers import VENDORS

REQUEST = ModelRequest("drafter", turns=(ChatTurn("user", "write"),))
KEY = "scripted-server-key"


@pytest.fixture(params=VENDORS)
def vendor(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def texts_of(pieces: list[AnswerPiece]) -> list[str]:
    return [piece.text for piece in pieces if piece.call is None]


def test_each_piece_is_passed_on_before_the_next_is_sent(vendor: str) -> None:
    passed_on = threading.Event()
    pieces: list[AnswerPiece] = []

    def take(piece: AnswerPiece) -> None:
        pieces.append(piece)
        passed_on.set()

    async def act(incoming: HttpRequest, out: Connection) -> None:
        await events(out, start_events(vendor))
        for text in ("one ", "two ", "three"):
            passed_on.clear()
            out.put(text_event(vendor, text))
            await out.flush()
            assert await asyncio.to_thread(passed_on.wait, 20), "a piece waits for the end of the answer"
        out.put(end_events(vendor, STOP[vendor]))
        out.finish()

    with leased_worker(vendor, act) as session:
        response = session.ask(REQUEST, take)
        assert not session.worker.model._active
        [released] = session.worker.released
    assert texts_of(pieces) == ["one ", "two ", "three"] and response.text == "one two three"
    assert released.usage.output_tokens == OUTPUT_TOKENS == response.usage.output_tokens


def test_a_refused_call_goes_on_with_another_lease_until_a_piece_is_out(vendor: str) -> None:
    calls = []

    async def act(incoming: HttpRequest, out: Connection) -> None:
        calls.append(1)
        if len(calls) == 1:
            out.begin(503, [("content-length", "0")])
            out.finish()
        elif len(calls) == 2:
            await events(out, start_events(vendor), text_event(vendor, "half an "))
            out.finish()
        else:
            send_events(out, whole_stream(vendor, ["a whole answer"], STOP[vendor]))

    pieces: list[AnswerPiece] = []
    with leased_worker(vendor, act) as session:
        with pytest.raises(StreamCut, match="a streamed answer was cut off"):
            session.ask(REQUEST, pieces.append)
        assert texts_of(pieces) == ["half an "] and len(calls) == 2
        # What has arrived is paid for, and the key is free again.
        assert [event.usage.calls for event in session.worker.released] == [0, 1]
        assert session.ask(REQUEST).text == "a whole answer"


def test_a_stream_in_which_nothing_comes_for_too_long_is_cut(vendor: str) -> None:
    async def act(incoming: HttpRequest, out: Connection) -> None:
        await events(out, start_events(vendor), text_event(vendor, "half an "))
        await asyncio.get_running_loop().create_future()

    pieces: list[AnswerPiece] = []
    with (
        leased_worker(vendor, act, call_timeout=0.3) as session,
        pytest.raises(StreamCut, match=r"no token for 0\.3 s"),
    ):
        session.ask(REQUEST, pieces.append)


def test_a_key_that_is_echoed_in_two_pieces_is_masked(vendor: str) -> None:
    async def act(incoming: HttpRequest, out: Connection) -> None:
        send_events(out, whole_stream(vendor, [f"key {KEY[:7]}", f"{KEY[7:]} \x1b[3", "1mred"], STOP[vendor]))

    pieces: list[AnswerPiece] = []
    with leased_worker(vendor, act) as session:
        response = session.ask(REQUEST, pieces.append)
    assert response.text == "key [secret] red" == "".join(texts_of(pieces))
    assert all(KEY[:7] not in text for text in texts_of(pieces))


TOOL_EVENTS: dict[str, list[dict[str, Any]]] = {
    "openai": [
        {"id": "1", "model": "m", "choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}
        for call in (
            {"index": 0, "id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"q"'}},
            {"index": 0, "function": {"arguments": ': "snow"}'}},
        )
    ],
    "anthropic": [
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "tool_use", "id": "c1", "name": "find", "input": {}},
        },
        *(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": part},
            }
            for part in ('{"q"', ': "snow"}')
        ),
    ],
    "gemini": [
        {
            "candidates": [
                {
                    "content": {
                        "role": "model",
                        "parts": [{"functionCall": {"name": "find", "args": {"q": "snow"}}}],
                    }
                }
            ]
        }
    ],
}


def test_a_tool_call_arrives_in_pieces_that_make_up_its_arguments(vendor: str) -> None:
    body = start_events(vendor) + event_stream(TOOL_EVENTS[vendor]) + end_events(vendor, STOP[vendor])

    async def act(incoming: HttpRequest, out: Connection) -> None:
        send_events(out, body)

    pieces: list[AnswerPiece] = []
    tool = ToolSpec("find", "Finds.", '{"type": "object", "properties": {"q": {"type": "string"}}}')
    with leased_worker(vendor, act) as session:
        [call] = session.ask(replace(REQUEST, tools=(tool,)), pieces.append).tool_calls
    parts = [piece.call for piece in pieces if piece.call]
    assert (
        json.loads("".join(part.arguments for part in parts)) == {"q": "snow"} == json.loads(call.arguments)
    )
    assert [(part.id, part.name) for part in parts if part.name] == [(call.id, "find")] and call.id


@given(
    words=st.lists(
        st.sampled_from([*"ab \n\r", KEY, KEY[:9], "\x1b", "[31m", "]0;t", "\x07", "\ud800", "é"]),
        max_size=40,
    ),
    data=st.data(),
)
def test_pieces_make_up_the_sanitized_text_however_it_is_cut(words: list[str], data: st.DataObject) -> None:
    text = "".join(words)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    got: list[AnswerPiece] = []
    redactor = Redactor((Secret(KEY),))
    sanitizer = PieceSanitizer(redactor, got.append)
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        sanitizer(AnswerPiece(text[start:end]))
    sanitizer.close()
    assert "".join(texts_of(got)) == _storable(text, redactor)
