"""What is sent to Gemini: the same as with the SDK's own types, without their search through all fields."""

import asyncio
import importlib
import json
from typing import Any

from google.genai import types

from agentos.core.protocol.ports import ChatTurn, LeasedKey, ModelRequest
from agentos.models.gemini import client
from agentos.models.warmup import STREAMS, event_stream, http_library

REQUEST = ModelRequest("reviewer", "Review it.", '{"type": "object"}', system="Be strict.", temperature=0.5)
TURNS = ModelRequest(
    "drafter",
    "",
    turns=(ChatTurn("user", "Hello."), ChatTurn("assistant", "Yes?"), ChatTurn("user", "Go on.")),
)


def test_the_sdk_finds_every_option_without_comparing_all_fields() -> None:
    assert sent(REQUEST) == {
        "contents": [{"parts": [{"text": "Review it."}], "role": "user"}],
        "systemInstruction": {"parts": [{"text": "Be strict."}], "role": "user"},
        "generationConfig": {
            "temperature": 0.5,
            "responseMimeType": "application/json",
            "responseJsonSchema": {"type": "object"},
        },
    }
    assert [turn["parts"] for turn in sent(TURNS)["contents"]] == [
        [{"text": "Hello."}],
        [{"text": "Yes?"}],
        [{"text": "Go on."}],
    ]


def test_the_options_of_a_call_are_not_copied_although_the_sdk_asks_for_a_deep_copy() -> None:
    key = LeasedKey("key-1", "no-key", "http://gemini.invalid", "gemini-2.5-pro")
    config = client._config(REQUEST, key)
    copied = config.model_copy(deep=True)
    assert copied is not config and copied == config
    assert copied.response_json_schema is config.response_json_schema
    # Nor does the SDK prepare to call functions.
    assert config.automatic_function_calling == types.AutomaticFunctionCallingConfig(disable=True)


def test_pydantic_finds_no_name_in_a_model_either() -> None:
    """If this changes, the answer of our own types is wrong."""
    pairs: tuple[tuple[Any, Any], ...] = (
        (client._Part(text="a"), types.Part(text="a")),
        (client._Config(temperature=1.0), types.GenerateContentConfig(temperature=1.0)),
    )
    for ours, theirs in pairs:
        for name in type(theirs).model_fields:
            assert (name in ours) is (name in theirs) is False
        assert ours.model_dump() == theirs.model_dump()


def sent(request: ModelRequest) -> Any:
    bodies: list[bytes] = []
    http = importlib.import_module(http_library("gemini"))  # older SDKs use another one

    def answer(call: Any) -> Any:
        bodies.append(call.content)
        headers = {"content-type": "text/event-stream"}
        return http.Response(200, headers=headers, content=event_stream(STREAMS["gemini"]))

    key = LeasedKey("key-1", "no-key", "http://gemini.invalid", "gemini-2.5-pro")
    asyncio.run(client.Gemini(transport=http.MockTransport(answer)).complete(request, key))
    return json.loads(bodies[0])
