"""Translates Gemini's REST format into the neutral words, there as well as back."""

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

from agentos.offline.rules import MODEL_NAME
from agentos.offline.vendors import gemini_errors
from agentos.offline.vendors.neutral import (
    Delivery,
    Finish,
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
    Stamp,
    count_tokens,
    pieces,
    positive,
    whole,
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
        return ParsedRequest(Purpose.LIST, secret, NeutralQuestion("", "", "", wants_json=False))
    if not found or request.method != "POST" or found["method"] not in METHODS:
        return NeutralRefusal(Reason.NOT_FOUND, f"{request.method} {request.path} is not found.")
    try:
        question = _question(found["model"], json.loads(request.body))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return NeutralRefusal(
            Reason.BAD_REQUEST,
            f"Invalid JSON payload received: {type(error).__name__}.",
        )
    return ParsedRequest(METHODS[found["method"]], secret, question, _delivery(found["method"], request))


def answer(asked: ParsedRequest, given: NeutralAnswer) -> Reply:
    if asked.delivery is Delivery.WHOLE:
        return whole(200, JSON_TYPE, _json(_response(asked, given, given.text)))
    return _stream(asked, given)


def count(tokens: int) -> Reply:
    details = [{"modality": "TEXT", "tokenCount": tokens}]
    return whole(200, JSON_TYPE, _json({"totalTokens": tokens, "promptTokensDetails": details}))


def models() -> Reply:
    methods = ["generateContent", "countTokens"]
    model = {
        "name": f"models/{MODEL_NAME}",
        "version": "1",
        "displayName": "Offline rule machine",
        "description": "Arranges the words of its prompt by fixed rules; not a language model.",
        "inputTokenLimit": 1048576,
        "outputTokenLimit": 65536,
        "supportedGenerationMethods": methods,
    }
    return whole(200, JSON_TYPE, _json({"models": [model]}))


def refuse(refusal: NeutralRefusal) -> Reply:
    status, body = gemini_errors.status_of(refusal), gemini_errors.body_of(refusal)
    hint = (("retry-after", refusal.retry_after),) if refusal.retry_after is not None else ()
    return whole(status, JSON_TYPE, _json(body), *hint)


def headers(stamp: Stamp) -> Headers:
    """Google tells nothing of its limits before they are hit."""
    return ()


DIALECT = OfflineDialect(claims, read, answer, count, models, refuse, headers)


def _question(model: str, body: dict[str, Any]) -> NeutralQuestion:
    request = body.get("generateContentRequest", body)
    config = request.get("generationConfig") or {}
    asked_for_json = config.get("responseMimeType") == "application/json"
    return NeutralQuestion(
        model=model,
        system=_text((request.get("systemInstruction") or {}).get("parts", [])),
        text="\n".join(_text(content["parts"]) for content in request["contents"]),
        wants_json=asked_for_json or "responseSchema" in config or "responseJsonSchema" in config,
        max_tokens=positive(config.get("maxOutputTokens")),
    )


def _text(parts: list[dict[str, Any]]) -> str:
    return "\n".join(str(part["text"]) for part in parts if "text" in part)


def _delivery(method: str, request: NeutralRequest) -> Delivery:
    if method != "streamGenerateContent":
        return Delivery.WHOLE
    return Delivery.EVENTS if request.query.get("alt") == "sse" else Delivery.ARRAY


def _stream(asked: ParsedRequest, given: NeutralAnswer) -> Reply:
    events = asked.delivery is Delivery.EVENTS
    kind = "text/event-stream" if events else JSON_TYPE
    chunks = _chunks(asked, given)
    return Reply(
        200,
        (("content-type", kind),),
        _as_events(chunks) if events else _as_array(chunks),
    )


def _chunks(asked: ParsedRequest, given: NeutralAnswer) -> Iterator[dict[str, Any]]:
    texts = pieces(given.text)
    for number, text in enumerate(texts, 1):
        chunk = _response(asked, given, text)
        if number < len(texts) or given.finish is Finish.OVERLOADED:
            for candidate in chunk.get("candidates", []):
                del candidate["finishReason"]
        yield chunk
    if given.finish is Finish.OVERLOADED:
        yield gemini_errors.body_of(NeutralRefusal(Reason.UNAVAILABLE))


def _as_events(chunks: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    return (b"data: " + json.dumps(chunk).encode() + b"\r\n\r\n" for chunk in chunks)


def _as_array(chunks: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    opening = b"["
    for chunk in chunks:
        yield opening + _json(chunk)
        opening = b",\r\n"
    yield b"]"


def _response(asked: ParsedRequest, given: NeutralAnswer, text: str) -> dict[str, Any]:
    told = count_tokens(given.text)
    usage = {
        "promptTokenCount": given.prompt_tokens,
        "candidatesTokenCount": told,
        "totalTokenCount": given.prompt_tokens + told,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": given.prompt_tokens}],
    }
    identity = hashlib.sha256((asked.question.text + given.text).encode(errors="surrogatepass")).hexdigest()[
        :22
    ]
    tail = {"usageMetadata": usage, "modelVersion": MODEL_NAME, "responseId": identity}
    return _spoken(given.finish, text) | tail


def _spoken(finish: Finish, text: str) -> dict[str, Any]:
    if finish is Finish.BLOCKED:
        return {"promptFeedback": {"blockReason": "SAFETY"}}
    content = {} if finish is Finish.SAFETY else {"content": {"parts": [{"text": text}], "role": "model"}}
    return {"candidates": [content | {"finishReason": FINISHES.get(finish), "index": 0}]}


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
