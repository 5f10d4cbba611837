"""Translates OpenAI's Responses format into the neutral words, there as well as back."""

import json
from collections.abc import Iterator
from typing import Any

from agentos.offline.rules import MODEL_NAME
from agentos.offline.vendors import openai_chat, openai_errors
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
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return NeutralRefusal(Reason.BAD_REQUEST, f"The request body is not valid: {type(error).__name__}.")


def answer(asked: ParsedRequest, given: NeutralAnswer) -> Reply:
    if asked.delivery is Delivery.WHOLE:
        return whole(200, openai_chat.JSON_TYPE, json.dumps(_response(given)).encode())
    return Reply(200, (("content-type", openai_chat.EVENTS_TYPE),), _events(given))


DIALECT = OfflineDialect(
    claims, read, answer, openai_chat.count, openai_chat.models, openai_chat.refuse, openai_errors.headers
)


def _question(body: dict[str, Any]) -> NeutralQuestion:
    given = body["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    most = positive(body.get("max_output_tokens"))
    return NeutralQuestion(
        model=str(body["model"]),
        system="\n".join([body.get("instructions") or "", *_texts(items, openai_chat.SYSTEM_ROLES)]),
        text="\n".join(_texts(items, ("user", "assistant"))),
        wants_json=((body.get("text") or {}).get("format") or {}).get("type") in openai_chat.JSON_FORMATS,
        max_tokens=most,
        reserved=most or 0,
    )


def _texts(items: list[dict[str, Any]], roles: tuple[str, ...]) -> list[str]:
    return [openai_chat.text_of(item.get("content")) for item in items if item.get("role") in roles]


def _response(given: NeutralAnswer) -> dict[str, Any]:
    cause = INCOMPLETE.get(given.finish)
    return _opening(given) | {
        "status": "incomplete" if cause else "completed",
        "incomplete_details": {"reason": cause} if cause else None,
        "output": [_item(given)],
        "usage": _usage(given),
    }


def _opening(given: NeutralAnswer) -> dict[str, Any]:
    return {
        "id": f"resp_offline{given.serial:016d}",
        "object": "response",
        "created_at": int(given.now),
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


def _usage(given: NeutralAnswer) -> dict[str, Any]:
    told = count_tokens(given.text)
    return {
        "input_tokens": given.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": told,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": given.prompt_tokens + told,
    }


def _item(given: NeutralAnswer) -> dict[str, Any]:
    return _empty_item(given) | {"status": "completed", "content": [_part(given.text)]}


def _empty_item(given: NeutralAnswer) -> dict[str, Any]:
    identity = f"msg_offline{given.serial:016d}"
    return {"id": identity, "type": "message", "role": "assistant", "status": "in_progress", "content": []}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _events(given: NeutralAnswer) -> Iterator[bytes]:
    for number, body in enumerate(_steps(given)):
        event = json.dumps(body | {"sequence_number": number})
        yield f"event: {body['type']}\ndata: {event}\n\n".encode()


def _steps(given: NeutralAnswer) -> Iterator[dict[str, Any]]:
    place = {"item_id": _empty_item(given)["id"], "output_index": 0, "content_index": 0}
    yield {"type": "response.created", "response": _opening(given)}
    yield {"type": "response.output_item.added", "output_index": 0, "item": _empty_item(given)}
    yield {"type": "response.content_part.added", "part": _part("")} | place
    for piece in pieces(given.text):
        yield {"type": "response.output_text.delta", "delta": piece, "logprobs": []} | place
    if given.finish is Finish.OVERLOADED:
        yield _error()
        return
    yield {"type": "response.output_text.done", "text": given.text, "logprobs": []} | place
    yield {"type": "response.content_part.done", "part": _part(given.text)} | place
    yield {"type": "response.output_item.done", "output_index": 0, "item": _item(given)}
    ending = "incomplete" if given.finish in INCOMPLETE else "completed"
    yield {"type": f"response.{ending}", "response": _response(given)}


def _error() -> dict[str, Any]:
    found = openai_errors.body_of(NeutralRefusal(Reason.OVERLOADED))["error"]
    return {"type": "error", "code": found["code"], "message": found["message"], "param": None}
