"""Anthropic's Messages API."""

import json
from collections.abc import Iterator
from typing import Any

from agentos.offline import MODEL_NAME
from agentos.offline.vendors import anthropic_errors
from agentos.offline.vendors.neutral import (
    MALFORMED,
    Delivery,
    Finish,
    ForcedTool,
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
    event_stream,
    invalid_body,
    json_object,
    json_reply,
    model_list_request,
    optional_positive,
    schema_text,
    stream_chunks,
)

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
    is_anthropic = "anthropic-version" in request.headers or "x-api-key" in request.headers
    return request.path.startswith(MESSAGES) or (is_anthropic and request.path.startswith("/v1/"))


def read(request: NeutralRequest) -> ParsedRequest | NeutralRefusal:
    purpose = PURPOSES.get((request.method, request.path))
    secret = request.headers.get("x-api-key") or bearer(request)
    if purpose is None:
        return NeutralRefusal(Reason.NOT_FOUND, f"{request.method} {request.path} is not found.")
    if purpose is Purpose.LIST:
        return model_list_request(secret)
    try:
        body = json.loads(request.body)
        question = _question(body)
        if purpose is Purpose.GENERATE and question.max_tokens is None:
            return NeutralRefusal(Reason.BAD_REQUEST, "max_tokens: Field required")
        return ParsedRequest(
            purpose, secret, question, Delivery.EVENTS if body.get("stream") else Delivery.WHOLE
        )
    except MALFORMED as error:
        return invalid_body(error)


def write_answer(request: ParsedRequest, answer: NeutralAnswer) -> Reply:
    if request.delivery is Delivery.WHOLE:
        return json_reply(_message(request, answer))
    return event_stream(_events(request, answer))


def count(tokens: int) -> Reply:
    return json_reply({"input_tokens": tokens})


def models() -> Reply:
    model = {
        "type": "model",
        "id": MODEL_NAME,
        "display_name": "Offline rule engine",
        "created_at": "1970-01-01T00:00:00Z",
        "lifecycle": "active",
        "max_input_tokens": 1000000,
        "max_tokens": 65536,
    }
    page = {"data": [model], "has_more": False, "first_id": MODEL_NAME, "last_id": MODEL_NAME}
    return json_reply(page)


def refuse(refusal: NeutralRefusal) -> Reply:
    return json_reply(
        anthropic_errors.error_body(refusal),
        anthropic_errors.ERRORS[refusal.reason].status,
        anthropic_errors.retry_headers(refusal),
    )


DIALECT = OfflineDialect(claims, read, write_answer, count, models, refuse, anthropic_errors.response_headers)


def _question(body: dict[str, Any]) -> NeutralQuestion:
    tool = _forced_tool(body)
    output_format = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
    return NeutralQuestion(
        model=str(body["model"]),
        system=_text(body.get("system") or ""),
        text="\n".join(_text(message["content"]) for message in body["messages"]),
        wants_json=bool(tool.name) or output_format.get("type") == "json_schema",
        max_tokens=optional_positive(body.get("max_tokens")),
        tool=tool.name,
        schema=tool.parameters or schema_text(output_format.get("schema")),
    )


def _forced_tool(body: dict[str, Any]) -> ForcedTool:
    choice, tools = body.get("tool_choice") or {}, body.get("tools") or []
    if choice.get("type") not in ("tool", "any"):
        return ForcedTool()
    name = str(choice["name"] if choice["type"] == "tool" else tools[0]["name"])
    schemas = [tool.get("input_schema") for tool in tools if tool.get("name") == name]
    return ForcedTool(name, schema_text(schemas[0] if schemas else None))


def _text(content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(block["text"]) for block in content if "text" in block)


def _message(request: ParsedRequest, answer: NeutralAnswer) -> dict[str, Any]:
    block = _block(request, answer)
    return _message_start(answer) | {
        "content": [block] if answer.text else [],
        "stop_reason": _stop_reason(block, answer),
        "usage": {"input_tokens": answer.prompt_tokens, "output_tokens": count_tokens(answer.text)},
    }


def _message_start(answer: NeutralAnswer) -> dict[str, Any]:
    return {
        "id": f"msg_offline{answer.serial:016d}",
        "type": "message",
        "role": "assistant",
        "model": MODEL_NAME,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": answer.prompt_tokens, "output_tokens": 1},
    }


def _block(request: ParsedRequest, answer: NeutralAnswer) -> dict[str, Any]:
    """The content block. Text that is not a JSON object, because it was cut or corrupted, cannot be a tool's input."""
    tool = request.question.tool
    tool_input = json_object(answer.text) if tool else None
    if tool_input is None:
        return {"type": "text", "text": answer.text}
    return {"type": "tool_use", "id": f"toolu_offline{answer.serial:016d}", "name": tool, "input": tool_input}


def _stop_reason(block: dict[str, Any], answer: NeutralAnswer) -> str:
    if block["type"] == "tool_use" and answer.finish is Finish.STOP:
        return "tool_use"
    return FINISHES[answer.finish]


def _events(request: ParsedRequest, answer: NeutralAnswer) -> Iterator[bytes]:
    block = _block(request, answer)
    yield _event({"type": "message_start", "message": _message_start(answer)})
    if answer.text:
        yield from _block_events(block, answer.text)
    if answer.finish is Finish.OVERLOADED:
        yield _event(anthropic_errors.error_body(NeutralRefusal(Reason.OVERLOADED, serial=answer.serial)))
    else:
        yield from _closing_events(block, answer)


def _closing_events(block: dict[str, Any], answer: NeutralAnswer) -> Iterator[bytes]:
    if answer.text:
        yield _event({"type": "content_block_stop", "index": 0})
    delta = {"stop_reason": _stop_reason(block, answer), "stop_sequence": None}
    usage = {"input_tokens": answer.prompt_tokens, "output_tokens": count_tokens(answer.text)}
    yield _event({"type": "message_delta", "delta": delta, "usage": usage})
    yield _event({"type": "message_stop"})


def _block_events(block: dict[str, Any], text: str) -> Iterator[bytes]:
    is_text = block["type"] == "text"
    empty: dict[str, Any] = {"text": ""} if is_text else {"input": {}}
    kind, field = ("text_delta", "text") if is_text else ("input_json_delta", "partial_json")
    yield _event({"type": "content_block_start", "index": 0, "content_block": block | empty})
    yield _event({"type": "ping"})
    for piece in stream_chunks(text):
        delta = {"type": kind, field: piece}
        yield _event({"type": "content_block_delta", "index": 0, "delta": delta})


def _event(body: dict[str, Any]) -> bytes:
    return f"event: {body['type']}\ndata: {json.dumps(body)}\n\n".encode()
