"""OpenAI's Chat Completions API."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from agentos.offline import MODEL_NAME
from agentos.offline.vendors import openai_errors
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
    json_reply,
    model_list_request,
    optional_positive,
    schema_text,
    stream_chunks,
)

COMPLETIONS, MODELS = "/v1/chat/completions", "/v1/models"
JSON_FORMATS = ("json_schema", "json_object")
SYSTEM_ROLES = ("system", "developer")
FINISHES = {
    Finish.STOP: "stop",
    Finish.MAX_TOKENS: "length",
    Finish.SAFETY: "content_filter",
    Finish.BLOCKED: "stop",
}
REFUSAL = "I'm sorry, I can't help with that."


def claims(request: NeutralRequest) -> bool:
    return request.path == COMPLETIONS or (request.path == MODELS and "authorization" in request.headers)


def read(request: NeutralRequest) -> ParsedRequest | NeutralRefusal:
    if (request.method, request.path) == ("GET", MODELS):
        return model_list_request(bearer(request))
    if request.method != "POST":
        return NeutralRefusal(Reason.NOT_FOUND, f"Invalid URL ({request.method} {request.path})")
    try:
        body = json.loads(request.body)
        return ParsedRequest(Purpose.GENERATE, bearer(request), _question(body), _delivery(body))
    except MALFORMED as error:
        return invalid_body(error)


def write_answer(request: ParsedRequest, answer: NeutralAnswer) -> Reply:
    if request.delivery is Delivery.WHOLE:
        return json_reply(_completion(request, answer))
    return event_stream(_events(request, answer))


def count(tokens: int) -> Reply:
    """OpenAI has no endpoint for counting tokens, so this is never called."""
    return refuse(NeutralRefusal(Reason.NOT_FOUND))


def models() -> Reply:
    model = {"id": MODEL_NAME, "object": "model", "created": 0, "owned_by": "agentos"}
    return json_reply({"object": "list", "data": [model]})


def refuse(refusal: NeutralRefusal) -> Reply:
    return json_reply(
        openai_errors.error_body(refusal),
        openai_errors.ERRORS[refusal.reason].status,
        openai_errors.retry_headers(refusal),
    )


DIALECT = OfflineDialect(claims, read, write_answer, count, models, refuse, openai_errors.response_headers)


def content_text(content: str | list[dict[str, Any]] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(str(part["text"]) for part in content if "text" in part)


def forced_tool(body: dict[str, Any], functions: list[dict[str, Any]]) -> ForcedTool:
    """`functions` are the descriptions of all functions that the request offers."""
    choice = body.get("tool_choice")
    if not functions or not (choice == "required" or isinstance(choice, dict)):
        return ForcedTool()
    wanted = choice.get("function", choice).get("name") if isinstance(choice, dict) else functions[0]["name"]
    schemas = [function.get("parameters") for function in functions if function.get("name") == wanted]
    return ForcedTool(str(wanted), schema_text(schemas[0])) if schemas else ForcedTool()


def _question(body: dict[str, Any]) -> NeutralQuestion:
    messages = body["messages"]
    tool = forced_tool(body, [each["function"] for each in body.get("tools") or [] if "function" in each])
    answer_format = body.get("response_format") or {}
    max_tokens = optional_positive(body.get("max_completion_tokens") or body.get("max_tokens"))
    return NeutralQuestion(
        model=str(body["model"]),
        system=_texts(message for message in messages if message["role"] in SYSTEM_ROLES),
        text=_texts(message for message in messages if message["role"] not in SYSTEM_ROLES),
        wants_json=bool(tool.name) or answer_format.get("type") in JSON_FORMATS,
        max_tokens=max_tokens,
        reserved=max_tokens or 0,
        tool=tool.name,
        schema=tool.parameters or schema_text((answer_format.get("json_schema") or {}).get("schema")),
    )


def _texts(messages: Iterable[dict[str, Any]]) -> str:
    return "\n".join(content_text(message.get("content")) for message in messages)


def _delivery(body: dict[str, Any]) -> Delivery:
    if not body.get("stream"):
        return Delivery.WHOLE
    wants_usage = (body.get("stream_options") or {}).get("include_usage")
    return Delivery.EVENTS_WITH_USAGE if wants_usage else Delivery.EVENTS


def _completion(request: ParsedRequest, answer: NeutralAnswer) -> dict[str, Any]:
    message = {"role": "assistant", **_content(request, answer)}
    finish = _finish_reason(request, answer)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    return _header(answer, "chat.completion") | {"choices": [choice], "usage": _usage(answer)}


def _header(answer: NeutralAnswer, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-offline{answer.serial:016d}",
        "object": kind,
        "created": int(answer.now),
        "model": MODEL_NAME,
        "service_tier": "default",
        "system_fingerprint": None,
    }


def _finish_reason(request: ParsedRequest, answer: NeutralAnswer) -> str:
    is_call = request.question.tool and answer.finish is Finish.STOP
    return "tool_calls" if is_call else FINISHES[answer.finish]


def _content(request: ParsedRequest, answer: NeutralAnswer) -> dict[str, Any]:
    if answer.finish is Finish.BLOCKED:
        return {"content": None, "refusal": REFUSAL}
    if request.question.tool:
        call = _tool_call(request, answer, answer.text)
        return {"content": None, "refusal": None, "tool_calls": [call]}
    return {"content": answer.text, "refusal": None}


def _tool_call(request: ParsedRequest, answer: NeutralAnswer, arguments: str) -> dict[str, Any]:
    function = {"name": request.question.tool, "arguments": arguments}
    return {"id": f"call_offline{answer.serial:016d}", "type": "function", "function": function}


def _usage(answer: NeutralAnswer) -> dict[str, int]:
    output_tokens = count_tokens(answer.text)
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": answer.prompt_tokens + output_tokens,
    }


def _events(request: ParsedRequest, answer: NeutralAnswer) -> Iterator[bytes]:
    header = _header(answer, "chat.completion.chunk")
    if request.delivery is Delivery.EVENTS_WITH_USAGE:
        header["usage"] = None
    for delta in _deltas(request, answer):
        yield _event(header | {"choices": [_choice(delta, None)]})
    if answer.finish is Finish.OVERLOADED:
        yield _event(openai_errors.error_body(NeutralRefusal(Reason.OVERLOADED)))
        return
    yield _event(header | {"choices": [_choice({}, _finish_reason(request, answer))]})
    if "usage" in header:
        yield _event(header | {"choices": [], "usage": _usage(answer)})
    yield b"data: [DONE]\n\n"


def _deltas(request: ParsedRequest, answer: NeutralAnswer) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": "", "refusal": None}
    if answer.finish is Finish.BLOCKED:
        yield {"refusal": REFUSAL}
    elif request.question.tool:
        yield {"tool_calls": [{"index": 0, **_tool_call(request, answer, "")}]}
        for piece in stream_chunks(answer.text):
            yield {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
    else:
        yield from ({"content": piece} for piece in stream_chunks(answer.text))


def _choice(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"
