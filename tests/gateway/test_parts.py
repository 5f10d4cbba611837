"""Unit tests of tokens, usage reader, proxies and redaction."""

import gzip
import json

import pytest

from agentos.core.protocol.results import Usage
from agentos.gateway.dialects import DIALECTS
from agentos.gateway.stream_redactor import StreamRedactor
from agentos.gateway.tokens import TokenSigner
from agentos.gateway.upstream import proxy_for
from agentos.gateway.usage_reader import MAX_WHOLE_BYTES, UsageReader

STREAM = {"content-type": "text/event-stream; charset=utf-8"}
JSON = {"content-type": "application/json"}


@pytest.mark.parametrize("item", ["LLD-42", "a b/c", "ünïcode", "x" * 300])
def test_a_token_identifies_its_item_only_to_signers_with_the_same_seed(item: str) -> None:
    signer = TokenSigner()
    assert signer.item(signer.token(item)) == item
    assert TokenSigner(signer.seed).item(signer.token(item)) == item
    assert TokenSigner().item(signer.token(item)) is None
    assert signer.token(item).isascii() and " " not in signer.token(item)


@pytest.mark.parametrize("token", ["", ".", "..", "agentos..", "agentos.YQ.é", "agentos.\udc80.x"])
def test_malformed_tokens_are_rejected(token: str) -> None:
    assert TokenSigner().item(token) is None


@pytest.mark.parametrize(
    ("provider", "answer", "expected"),
    [
        (
            "gemini",
            {"usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 3, "thoughtsTokenCount": 2}},
            (7, 5),
        ),
        (
            "anthropic",
            {"usage": {"input_tokens": 5, "cache_read_input_tokens": 2, "output_tokens": 5}},
            (7, 5),
        ),
        ("openai", {"usage": {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}}, (7, 5)),
        (
            "openai",
            {"type": "response.completed", "response": {"usage": {"input_tokens": 7, "output_tokens": 5}}},
            (7, 5),
        ),
    ],
)
def test_usage_is_read_however_a_response_is_chunked_or_compressed(
    provider: str, answer: dict[str, object], expected: tuple[int, int]
) -> None:
    whole = json.dumps(answer).encode()
    stream = b'data: {"text": "hello"}\r\n\r\ndata: ' + whole + b"\r\n\r\n"
    packed = (gzip.compress(whole), JSON | {"content-encoding": "gzip"})
    for body, headers in ((whole, JSON), (stream, STREAM), packed):
        reader = UsageReader(DIALECTS[provider], headers)
        for at in range(len(body)):
            reader.feed(body[at : at + 1])
        reader.end()
        assert reader.usage(1) == Usage(1, *expected)
        assert not reader.is_estimate


def test_usage_is_found_in_the_tail_of_a_very_long_response() -> None:
    reader = UsageReader(DIALECTS["openai"], JSON)
    reader.feed(b'{"data": "')
    for _ in range(MAX_WHOLE_BYTES // 1000 + 10):
        reader.feed(b"x" * 1000)
    reader.feed(b'", "usage": {"prompt_tokens": 7, "completion_tokens": 5}}')
    reader.end()
    assert reader.usage(1) == Usage(1, 7, 5)


def test_a_response_without_usage_is_estimated_by_its_text() -> None:
    reader = UsageReader(DIALECTS["openai"], STREAM)
    for _ in range(10):
        reader.feed(b'data: {"choices": [{"delta": {"content": "four"}}]}\n\n')
    reader.feed(b"data: [DONE]\n\n")
    reader.end()
    assert reader.is_estimate and reader.usage(99) == Usage(1, 99, 10)


@pytest.mark.parametrize(
    ("provider", "event", "status"),
    [
        ("gemini", {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}, 429),
        ("anthropic", {"type": "error", "error": {"type": "overloaded_error"}}, 529),
        ("openai", {"error": {"code": "rate_limit_exceeded"}}, 429),
        ("openai", {"type": "response.failed", "response": {"error": {"code": "server_error"}}}, 500),
        ("openai", {"error": {"code": 503}}, 503),
        ("openai", {"error": {"code": "invalid_prompt"}}, 400),
        ("openai", {"error": None, "choices": []}, None),
    ],
)
def test_an_error_in_a_stream_gets_the_status_of_an_error_response(
    provider: str, event: dict[str, object], status: int | None
) -> None:
    reader = UsageReader(DIALECTS[provider], STREAM)
    reader.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
    assert (reader.failure.status if reader.failure else None) == status


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("api.openai.com", "http://proxy:3128"),
        ("127.0.0.1", ""),
        ("x.corp", ""),
        ("corp", ""),
        ("notcorp", "http://proxy:3128"),
    ],
)
def test_the_proxy_of_the_environment_is_used_except_for_no_proxy_hosts(host: str, expected: str) -> None:
    environment = {"HTTPS_PROXY": "http://proxy:3128", "no_proxy": ".corp, other"}
    assert proxy_for("https", host, environment) == expected


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_a_key_is_redacted_wherever_a_response_is_split(size: int) -> None:
    redactor, text = StreamRedactor("keke-y"), b"a kek of keke-y, kekeke-y and a ke"
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    passed = [redactor.feed(piece) for piece in pieces]
    assert b"".join([*passed, redactor.flush()]) == b"a kek of ******, ke****** and a ke"
    assert redactor.flush() == b""


def test_bytes_that_cannot_start_a_key_are_passed_at_once() -> None:
    redactor = StreamRedactor("secret")
    assert redactor.feed(b"data: {}\n\n") == b"data: {}\n\n"
    assert redactor.redact_headers((("x-echo", "key=secret"), ("x", "y"))) == (
        ("x-echo", "key=******"),
        ("x", "y"),
    )
