"""Translates OpenAI's Chat Completions format into the neutral words, there as well as back."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from agentos.offline.rules import MODEL_NAME
from agentos.offline.vendors import openai_errors
from agentos.offline.vendors.neutral import (
    Delivery,
    Finish,
    NeutralAnswer,
    NeutralQuestion,
    NeutralRefusal,
    NeutralRequest,
    OfflineDialect,
    ParsedRequest,
    Purpose,
    Reason,
    Reply,
    bearer,
    count_tokens,
    pieces,
    positive,
    whole,
)

JSON_TYPE, EVENTS_TYPE = "application/json", "text/event-stream; charset=utf-8"
COMPLETIONS, MODELS = "/v1/chat/completions", "/v1/models"
JSON_FORMATS = ("json_schema", "json_object")
SYSTEM_ROLES = ("system", "developer")
FINISHES = {
    Finish.STOP: "stop",
    Finish.MAX_TOKENS: "length",
    Finish.SAFETY: "content_filter",
    Finish.BLOCKED: "stop",
}
BLOCKED = "I'm sorry, I can't help with that."


def claims(request: NeutralRequest) -> bool:
    return request.path == COMPLETIONS or (request.path == MODELS and "authorization" in request.headers)


def read(request: NeutralRequest) -> ParsedRequest | NeutralRefusal:
    if (request.method, request.path) == ("GET", MODELS):
        return ParsedRequest(Purpose.LIST, bearer(request), NeutralQuestion("", "", "", wants_json=False))
    if request.method != "POST":
        return NeutralRefusal(Reason.NOT_FOUND, f"Invalid URL ({request.method} {request.path})")
    try:
        body = json.loads(request.body)
        return ParsedRequest(Purpose.GENERATE, bearer(request), _question(body), _delivery(body))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return NeutralRefusal(Reason.BAD_REQUEST, f"The request body is not valid: {type(error).__name__}.")


def answer(asked: ParsedRequest, given: NeutralAnswer) -> Reply:
    if asked.delivery is Delivery.WHOLE:
        return whole(200, JSON_TYPE, _json(_completion(given)))
    return Reply(200, (("content-type", EVENTS_TYPE),), _events(asked, given))


def count(tokens: int) -> Reply:
    """OpenAI counts no tokens beforehand, so nobody asks."""
    return refuse(NeutralRefusal(Reason.NOT_FOUND))


def models() -> Reply:
    model = {"id": MODEL_NAME, "object": "model", "created": 0, "owned_by": "agentos"}
    return whole(200, JSON_TYPE, _json({"object": "list", "data": [model]}))


def refuse(refusal: NeutralRefusal) -> Reply:
    status, body = openai_errors.status_of(refusal), openai_errors.body_of(refusal)
    return whole(status, JSON_TYPE, _json(body), *openai_errors.hint_headers(refusal))


DIALECT = OfflineDialect(claims, read, answer, count, models, refuse, openai_errors.headers)


def text_of(content: str | list[dict[str, Any]] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(str(part["text"]) for part in content if "text" in part)


def _question(body: dict[str, Any]) -> NeutralQuestion:
    messages = body["messages"]
    most = positive(body.get("max_completion_tokens") or body.get("max_tokens"))
    return NeutralQuestion(
        model=str(body["model"]),
        system=_texts(message for message in messages if message["role"] in SYSTEM_ROLES),
        text=_texts(message for message in messages if message["role"] not in SYSTEM_ROLES),
        wants_json=(body.get("response_format") or {}).get("type") in JSON_FORMATS,
        max_tokens=most,
        reserved=most or 0,
    )


def _texts(messages: Iterable[dict[str, Any]]) -> str:
    return "\n".join(text_of(message.get("content")) for message in messages)


def _delivery(body: dict[str, Any]) -> Delivery:
    if not body.get("stream"):
        return Delivery.WHOLE
    wants_usage = (body.get("stream_options") or {}).get("include_usage")
    return Delivery.EVENTS_WITH_USAGE if wants_usage else Delivery.EVENTS


def _completion(given: NeutralAnswer) -> dict[str, Any]:
    message = {"role": "assistant", **_said(given)}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": FINISHES[given.finish]}
    return _opening(given, "chat.completion") | {"choices": [choice], "usage": _usage(given)}


def _opening(given: NeutralAnswer, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-offline{given.serial:016d}",
        "object": kind,
        "created": int(given.now),
        "model": MODEL_NAME,
        "service_tier": "default",
        "system_fingerprint": None,
    }


def _said(given: NeutralAnswer) -> dict[str, Any]:
    if given.finish is Finish.BLOCKED:
        return {"content": None, "refusal": BLOCKED}
    return {"content": given.text, "refusal": None}


def _usage(given: NeutralAnswer) -> dict[str, int]:
    told = count_tokens(given.text)
    total = given.prompt_tokens + told
    return {"prompt_tokens": given.prompt_tokens, "completion_tokens": told, "total_tokens": total}


def _events(asked: ParsedRequest, given: NeutralAnswer) -> Iterator[bytes]:
    opening = _opening(given, "chat.completion.chunk")
    if asked.delivery is Delivery.EVENTS_WITH_USAGE:
        opening["usage"] = None
    for delta in _deltas(given):
        yield _event(opening | {"choices": [_choice(delta, None)]})
    if given.finish is Finish.OVERLOADED:
        yield _event(openai_errors.body_of(NeutralRefusal(Reason.OVERLOADED)))
        return
    yield _event(opening | {"choices": [_choice({}, FINISHES[given.finish])]})
    if "usage" in opening:
        yield _event(opening | {"choices": [], "usage": _usage(given)})
    yield b"data: [DONE]\n\n"


def _deltas(given: NeutralAnswer) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": "", "refusal": None}
    if given.finish is Finish.BLOCKED:
        yield {"refusal": BLOCKED}
    else:
        yield from ({"content": piece} for piece in pieces(given.text))


def _choice(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + _json(body) + b"\n\n"


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
