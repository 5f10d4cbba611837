"""OpenAI's Responses API."""

import json
from collections.abc import Iterator
from typing import Any

from agentos.offline import MODEL_NAME
from agentos.offline.vendors import openai_chat, openai_errors
from agentos.offline.vendors.neutral import (
    MALFORMED,
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
    event_stream,
    invalid_body,
    json_reply,
    optional_positive,
    schema_text,
    stream_chunks,
)

PATH = "/v1/responses"
INCOMPLETE = {
    Finish.MAX_TOKENS: "max_output_tokens",
    Finish.SAFETY: "content_filter",
    Finish.BLOCKED: "content_filter",
}


def claims(request: NeutralRequest) -> bool:
    return request.path == PATH


def read(request: NeutralRequest) -> ParsedRequest | NeutralRefusal:
    if request.method != "POST":
        return NeutralRefusal(Reason.NOT_FOUND, f"Invalid URL ({request.method} {request.path})")
    try:
        body = json.loads(request.body)
        delivery = Delivery.EVENTS if body.get("stream") else Delivery.WHOLE
        return ParsedRequest(Purpose.GENERATE, bearer(request), _question(body), delivery)
    except MALFORMED as error:
        return invalid_body(error)


def write_answer(request: ParsedRequest, answer: NeutralAnswer) -> Reply:
    if request.delivery is Delivery.WHOLE:
        return json_reply(_response(request, answer))
    return event_stream(_events(request, answer))


DIALECT = OfflineDialect(
    claims,
    read,
    write_answer,
    openai_chat.count,
    openai_chat.models,
    openai_chat.refuse,
    openai_errors.response_headers,
)


def _question(body: dict[str, Any]) -> NeutralQuestion:
    content = body["input"]
    items = [{"role": "user", "content": content}] if isinstance(content, str) else content
    max_tokens = optional_positive(body.get("max_output_tokens"))
    functions = [tool for tool in body.get("tools") or [] if tool.get("type") == "function"]
    tool = openai_chat.forced_tool(body, functions)
    answer_format = (body.get("text") or {}).get("format") or {}
    return NeutralQuestion(
        model=str(body["model"]),
        system="\n".join([body.get("instructions") or "", *_texts(items, openai_chat.SYSTEM_ROLES)]),
        text="\n".join(_texts(items, ("user", "assistant"))),
        wants_json=bool(tool.name) or answer_format.get("type") in openai_chat.JSON_FORMATS,
        max_tokens=max_tokens,
        reserved=max_tokens or 0,
        tool=tool.name,
        schema=tool.parameters or schema_text(answer_format.get("schema")),
    )


def _texts(items: list[dict[str, Any]], roles: tuple[str, ...]) -> list[str]:
    return [openai_chat.content_text(item.get("content")) for item in items if item.get("role") in roles]


def _response(request: ParsedRequest, answer: NeutralAnswer) -> dict[str, Any]:
    cause = INCOMPLETE.get(answer.finish)
    return _response_start(answer) | {
        "status": "incomplete" if cause else "completed",
        "incomplete_details": {"reason": cause} if cause else None,
        "output": [_item(request, answer)],
        "usage": _usage(answer),
    }


def _response_start(answer: NeutralAnswer) -> dict[str, Any]:
    return {
        "id": f"resp_offline{answer.serial:016d}",
        "object": "response",
        "created_at": int(answer.now),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": MODEL_NAME,
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def _usage(answer: NeutralAnswer) -> dict[str, Any]:
    output_tokens = count_tokens(answer.text)
    return {
        "input_tokens": answer.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.prompt_tokens + output_tokens,
    }


def _item(request: ParsedRequest, answer: NeutralAnswer) -> dict[str, Any]:
    content = {"arguments": answer.text} if request.question.tool else {"content": [_part(answer.text)]}
    return _empty_item(request, answer) | {"status": "completed"} | content


def _empty_item(request: ParsedRequest, answer: NeutralAnswer) -> dict[str, Any]:
    if tool := request.question.tool:
        ids = {"id": f"fc_offline{answer.serial:016d}", "call_id": f"call_offline{answer.serial:016d}"}
        return ids | {"type": "function_call", "status": "in_progress", "name": tool, "arguments": ""}
    message_id = f"msg_offline{answer.serial:016d}"
    return {"id": message_id, "type": "message", "role": "assistant", "status": "in_progress", "content": []}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _events(request: ParsedRequest, answer: NeutralAnswer) -> Iterator[bytes]:
    for number, body in enumerate(_steps(request, answer)):
        event = json.dumps(body | {"sequence_number": number})
        yield f"event: {body['type']}\ndata: {event}\n\n".encode()


def _steps(request: ParsedRequest, answer: NeutralAnswer) -> Iterator[dict[str, Any]]:
    empty = _empty_item(request, answer)
    yield {"type": "response.created", "response": _response_start(answer)}
    yield {"type": "response.output_item.added", "output_index": 0, "item": empty}
    position = {"item_id": empty["id"], "output_index": 0}
    yield from (_call_steps if request.question.tool else _text_steps)(position, answer)
    if answer.finish is Finish.OVERLOADED:
        error = openai_errors.error_body(NeutralRefusal(Reason.OVERLOADED))["error"]
        yield {"type": "error", "code": error["code"], "message": error["message"], "param": None}
        return
    yield {"type": "response.output_item.done", "output_index": 0, "item": _item(request, answer)}
    ending = "incomplete" if answer.finish in INCOMPLETE else "completed"
    yield {"type": f"response.{ending}", "response": _response(request, answer)}


def _text_steps(position: dict[str, Any], answer: NeutralAnswer) -> Iterator[dict[str, Any]]:
    position = position | {"content_index": 0}
    yield {"type": "response.content_part.added", "part": _part("")} | position
    for piece in stream_chunks(answer.text):
        yield {"type": "response.output_text.delta", "delta": piece, "logprobs": []} | position
    if answer.finish is not Finish.OVERLOADED:
        yield {"type": "response.output_text.done", "text": answer.text, "logprobs": []} | position
        yield {"type": "response.content_part.done", "part": _part(answer.text)} | position


def _call_steps(position: dict[str, Any], answer: NeutralAnswer) -> Iterator[dict[str, Any]]:
    for piece in stream_chunks(answer.text):
        yield {"type": "response.function_call_arguments.delta", "delta": piece} | position
    if answer.finish is not Finish.OVERLOADED:
        yield {"type": "response.function_call_arguments.done", "arguments": answer.text} | position
