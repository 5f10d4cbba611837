"""Translates Anthropic's Messages format into the neutral words, there as well as back."""

import json
from collections.abc import Iterator
from typing import Any

from agentos.offline.rules import MODEL_NAME
from agentos.offline.vendors import anthropic_errors
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

JSON_TYPE = "application/json"
MESSAGES, COUNTING, MODELS = "/v1/messages", "/v1/messages/count_tokens", "/v1/models"
PURPOSES = {
    ("POST", MESSAGES): Purpose.GENERATE,
    ("POST", COUNTING): Purpose.COUNT,
    ("GET", MODELS): Purpose.LIST,
}
FINISHES = {
    Finish.STOP: "end_turn",
    Finish.MAX_TOKENS: "max_tokens",
    Finish.SAFETY: "refusal",
    Finish.BLOCKED: "refusal",
}


def claims(request: NeutralRequest) -> bool:
    ours = "anthropic-version" in request.headers or "x-api-key" in request.headers
    return request.path.startswith(MESSAGES) or (ours and request.path.startswith("/v1/"))


def read(request: NeutralRequest) -> ParsedRequest | NeutralRefusal:
    purpose = PURPOSES.get((request.method, request.path))
    secret = request.headers.get("x-api-key") or bearer(request)
    if purpose is None:
        return NeutralRefusal(Reason.NOT_FOUND, f"{request.method} {request.path} is not found.")
    if purpose is Purpose.LIST:
        return ParsedRequest(purpose, secret, NeutralQuestion("", "", "", wants_json=False))
    try:
        body = json.loads(request.body)
        question = _question(body)
        if purpose is Purpose.GENERATE and question.max_tokens is None:
            return NeutralRefusal(Reason.BAD_REQUEST, "max_tokens: Field required")
        return ParsedRequest(
            purpose, secret, question, Delivery.EVENTS if body.get("stream") else Delivery.WHOLE
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return NeutralRefusal(Reason.BAD_REQUEST, f"The request body is not valid: {type(error).__name__}.")


def answer(asked: ParsedRequest, given: NeutralAnswer) -> Reply:
    if asked.delivery is Delivery.WHOLE:
        return whole(200, JSON_TYPE, _json(_message(asked, given)))
    return Reply(200, (("content-type", "text/event-stream; charset=utf-8"),), _events(asked, given))


def count(tokens: int) -> Reply:
    return whole(200, JSON_TYPE, _json({"input_tokens": tokens}))


def models() -> Reply:
    model = {
        "type": "model",
        "id": MODEL_NAME,
        "display_name": "Offline rule machine",
        "created_at": "1970-01-01T00:00:00Z",
        "lifecycle": "active",
        "max_input_tokens": 1000000,
        "max_tokens": 65536,
    }
    page = {"data": [model], "has_more": False, "first_id": MODEL_NAME, "last_id": MODEL_NAME}
    return whole(200, JSON_TYPE, _json(page))


def refuse(refusal: NeutralRefusal) -> Reply:
    status, body = anthropic_errors.status_of(refusal), anthropic_errors.body_of(refusal)
    return whole(status, JSON_TYPE, _json(body), *anthropic_errors.hint_headers(refusal))


DIALECT = OfflineDialect(claims, read, answer, count, models, refuse, anthropic_errors.headers)


def _question(body: dict[str, Any]) -> NeutralQuestion:
    tool = _forced_tool(body)
    form = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
    return NeutralQuestion(
        model=str(body["model"]),
        system=_text(body.get("system") or ""),
        text="\n".join(_text(message["content"]) for message in body["messages"]),
        wants_json=bool(tool) or form.get("type") == "json_schema",
        max_tokens=positive(body.get("max_tokens")),
        tool=tool,
    )


def _forced_tool(body: dict[str, Any]) -> str:
    choice = body.get("tool_choice") or {}
    match choice.get("type"):
        case "tool":
            return str(choice["name"])
        case "any":
            return str(body["tools"][0]["name"])
        case _:
            return ""


def _text(content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(block["text"]) for block in content if "text" in block)


def _message(asked: ParsedRequest, given: NeutralAnswer) -> dict[str, Any]:
    block = _block(asked, given)
    return _opening(given) | {
        "content": [block] if given.text else [],
        "stop_reason": _stop_reason(block, given),
        "usage": {"input_tokens": given.prompt_tokens, "output_tokens": count_tokens(given.text)},
    }


def _opening(given: NeutralAnswer) -> dict[str, Any]:
    return {
        "id": f"msg_offline{given.serial:016d}",
        "type": "message",
        "role": "assistant",
        "model": MODEL_NAME,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": given.prompt_tokens, "output_tokens": 1},
    }


def _block(asked: ParsedRequest, given: NeutralAnswer) -> dict[str, Any]:
    """What is no JSON, since it was cut or spoilt, cannot be the input of a tool: it is text."""
    tool = asked.question.tool
    found = _parsed(given.text) if tool else None
    if found is None:
        return {"type": "text", "text": given.text}
    return {"type": "tool_use", "id": f"toolu_offline{given.serial:016d}", "name": tool, "input": found}


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _stop_reason(block: dict[str, Any], given: NeutralAnswer) -> str:
    if block["type"] == "tool_use" and given.finish is Finish.STOP:
        return "tool_use"
    return FINISHES[given.finish]


def _events(asked: ParsedRequest, given: NeutralAnswer) -> Iterator[bytes]:
    block = _block(asked, given)
    yield _event({"type": "message_start", "message": _opening(given)})
    if given.text:
        yield from _block_events(block, given.text)
    if given.finish is Finish.OVERLOADED:
        yield _event(anthropic_errors.body_of(NeutralRefusal(Reason.OVERLOADED, serial=given.serial)))
    else:
        yield from _closing_events(block, given)


def _closing_events(block: dict[str, Any], given: NeutralAnswer) -> Iterator[bytes]:
    if given.text:
        yield _event({"type": "content_block_stop", "index": 0})
    delta = {"stop_reason": _stop_reason(block, given), "stop_sequence": None}
    usage = {"input_tokens": given.prompt_tokens, "output_tokens": count_tokens(given.text)}
    yield _event({"type": "message_delta", "delta": delta, "usage": usage})
    yield _event({"type": "message_stop"})


def _block_events(block: dict[str, Any], text: str) -> Iterator[bytes]:
    plain = block["type"] == "text"
    nothing: dict[str, Any] = {"text": ""} if plain else {"input": {}}
    kind, field = ("text_delta", "text") if plain else ("input_json_delta", "partial_json")
    yield _event({"type": "content_block_start", "index": 0, "content_block": block | nothing})
    yield _event({"type": "ping"})
    for piece in pieces(text):
        delta = {"type": kind, field: piece}
        yield _event({"type": "content_block_delta", "index": 0, "delta": delta})


def _event(body: dict[str, Any]) -> bytes:
    return f"event: {body['type']}\ndata: {json.dumps(body)}\n\n".encode()


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
