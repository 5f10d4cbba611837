"""Reads requests and writes responses in the format of Gemini's REST API."""

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

from agentos.offline import MODEL_NAME
from agentos.offline.vendors import gemini_errors
from agentos.offline.vendors.neutral import (
    MALFORMED,
    Delivery,
    Finish,
    ForcedTool,
    Headers,
    NeutralAnswer,
    NeutralQuestion,
    NeutralRefusal,
    NeutralRequest,
    OfflineDialect,
    ParsedRequest,
    Purpose,
    Reason,
    Reply,
    count_tokens,
    json_object,
    model_list_request,
    optional_positive,
    schema_text,
    stream_chunks,
    whole_reply,
)

PATH = re.compile(r"^/v1(?:beta|alpha)?/models(?:/(?P<model>[^/:]+)(?::(?P<method>\w+))?)?$")
JSON_TYPE = "application/json; charset=UTF-8"
FINISHES = {
    Finish.STOP: "STOP",
    Finish.MAX_TOKENS: "MAX_TOKENS",
    Finish.SAFETY: "SAFETY",
}
METHODS = {
    "generateContent": Purpose.GENERATE,
    "streamGenerateContent": Purpose.GENERATE,
    "countTokens": Purpose.COUNT,
}


def claims(request: NeutralRequest) -> bool:
    return request.path.startswith("/v1")


def read(request: NeutralRequest) -> ParsedRequest | NeutralRefusal:
    found = PATH.match(request.path)
    secret = request.headers.get("x-goog-api-key", "")
    if found and request.method == "GET" and not found["method"]:
        return model_list_request(secret)
    if not found or request.method != "POST" or found["method"] not in METHODS:
        return NeutralRefusal(Reason.NOT_FOUND, f"{request.method} {request.path} is not found.")
    try:
        question = _question(found["model"], json.loads(request.body))
    except MALFORMED as error:
        return NeutralRefusal(
            Reason.BAD_REQUEST,
            f"Invalid JSON payload received: {type(error).__name__}.",
        )
    return ParsedRequest(METHODS[found["method"]], secret, question, _delivery(found["method"], request))


def write_answer(request: ParsedRequest, answer: NeutralAnswer) -> Reply:
    if request.delivery is Delivery.WHOLE:
        return _json_reply(_response(request, answer, answer.text))
    return _stream(request, answer)


def count(tokens: int) -> Reply:
    details = [{"modality": "TEXT", "tokenCount": tokens}]
    return _json_reply({"totalTokens": tokens, "promptTokensDetails": details})


def models() -> Reply:
    methods = ["generateContent", "countTokens"]
    model = {
        "name": f"models/{MODEL_NAME}",
        "version": "1",
        "displayName": "Offline rule engine",
        "description": "Arranges the words of its prompt by fixed rules; not a language model.",
        "inputTokenLimit": 1048576,
        "outputTokenLimit": 65536,
        "supportedGenerationMethods": methods,
    }
    return _json_reply({"models": [model]})


def refuse(refusal: NeutralRefusal) -> Reply:
    hint = (("retry-after", refusal.retry_after),) if refusal.retry_after is not None else ()
    return _json_reply(
        gemini_errors.error_body(refusal), gemini_errors.ERRORS[refusal.reason].status, headers=hint
    )


DIALECT = OfflineDialect(
    claims,
    read,
    write_answer,
    count,
    models,
    refuse,
    headers=lambda stamp: (),  # Google says nothing about its limits before they are exceeded.
)


def _question(model: str, body: dict[str, Any]) -> NeutralQuestion:
    request = body.get("generateContentRequest", body)
    config = request.get("generationConfig") or {}
    tool = _forced_tool(request)
    schema = config.get("responseJsonSchema") or config.get("responseSchema")
    wants_json = tool.name or schema or config.get("responseMimeType") == "application/json"
    return NeutralQuestion(
        model=model,
        system=_text((request.get("systemInstruction") or {}).get("parts", [])),
        text="\n".join(_text(content["parts"]) for content in request["contents"]),
        wants_json=bool(wants_json),
        max_tokens=optional_positive(config.get("maxOutputTokens")),
        tool=tool.name,
        schema=tool.parameters or schema_text(schema),
    )


def _forced_tool(request: dict[str, Any]) -> ForcedTool:
    choice = (request.get("toolConfig") or {}).get("functionCallingConfig") or {}
    groups = [tool.get("functionDeclarations") or [] for tool in request.get("tools") or []]
    functions = {str(function["name"]): function for group in groups for function in group}
    if choice.get("mode") != "ANY" or not functions:
        return ForcedTool()
    name = str(next(iter(choice.get("allowedFunctionNames") or functions)))
    function = functions[name]
    # The SDK writes this field as Python does.
    json_schema = function.get("parametersJsonSchema") or function.get("parameters_json_schema")
    return ForcedTool(name, schema_text(json_schema or function.get("parameters")))


def _text(parts: list[dict[str, Any]]) -> str:
    return "\n".join(str(part["text"]) for part in parts if "text" in part)


def _delivery(method: str, request: NeutralRequest) -> Delivery:
    if method != "streamGenerateContent":
        return Delivery.WHOLE
    return Delivery.EVENTS if request.query.get("alt") == "sse" else Delivery.ARRAY


def _stream(request: ParsedRequest, answer: NeutralAnswer) -> Reply:
    as_events = request.delivery is Delivery.EVENTS
    content_type = "text/event-stream" if as_events else JSON_TYPE
    chunks = _chunks(request, answer)
    return Reply(
        200,
        (("content-type", content_type),),
        (b"data: " + json.dumps(chunk).encode() + b"\r\n\r\n" for chunk in chunks)
        if as_events
        else _as_array(chunks),
    )


def _chunks(request: ParsedRequest, answer: NeutralAnswer) -> Iterator[dict[str, Any]]:
    texts = [answer.text] if _call(request, answer) else stream_chunks(answer.text)
    for number, text in enumerate(texts, 1):
        chunk = _response(request, answer, text)
        if number < len(texts) or answer.finish is Finish.OVERLOADED:
            for candidate in chunk.get("candidates", []):
                del candidate["finishReason"]
        yield chunk
    if answer.finish is Finish.OVERLOADED:
        yield gemini_errors.error_body(NeutralRefusal(Reason.UNAVAILABLE))


def _as_array(chunks: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    opening = b"["
    for chunk in chunks:
        yield opening + json.dumps(chunk).encode()
        opening = b",\r\n"
    yield b"]"


def _response(request: ParsedRequest, answer: NeutralAnswer, text: str) -> dict[str, Any]:
    output_tokens = count_tokens(answer.text)
    usage = {
        "promptTokenCount": answer.prompt_tokens,
        "candidatesTokenCount": output_tokens,
        "totalTokenCount": answer.prompt_tokens + output_tokens,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": answer.prompt_tokens}],
    }
    digest = hashlib.sha256((request.question.text + answer.text).encode(errors="surrogatepass"))
    metadata = {"usageMetadata": usage, "modelVersion": MODEL_NAME, "responseId": digest.hexdigest()[:22]}
    part = _call(request, answer) or {"text": text}
    return _candidates(answer.finish, part) | metadata


def _call(request: ParsedRequest, answer: NeutralAnswer) -> dict[str, Any] | None:
    """The call of a forced tool, which is never divided into pieces; None for a text."""
    tool = request.question.tool
    arguments = json_object(answer.text) if tool else None
    return None if arguments is None else {"functionCall": {"name": tool, "args": arguments}}


def _candidates(finish: Finish, part: dict[str, Any]) -> dict[str, Any]:
    if finish is Finish.BLOCKED:
        return {"promptFeedback": {"blockReason": "SAFETY"}}
    content = {} if finish is Finish.SAFETY else {"content": {"parts": [part], "role": "model"}}
    return {"candidates": [content | {"finishReason": FINISHES.get(finish), "index": 0}]}


def _json_reply(value: object, status: int = 200, headers: Headers = ()) -> Reply:
    return whole_reply(status, JSON_TYPE, json.dumps(value).encode(), *headers)
