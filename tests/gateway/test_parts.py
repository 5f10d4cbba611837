"""Unit tests of tokens, usage reader, proxies and redaction."""

import base64
import gzip
import json
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Callable

import pytest

from agentos.core.protocol.results import Usage
from agentos.gateway.child import _GatewayProcess
from agentos.gateway.dialects import DIALECTS
from agentos.gateway.request_parser import parse_request
from agentos.gateway.tokens import TokenSigner, client_variables
from agentos.gateway.upstream import StreamRedactor, proxy_for
from agentos.gateway.url_rewriter import UrlRewriter
from agentos.gateway.usage import MAX_LINE_BYTES, MAX_WHOLE_BYTES, UsageReader
from agentos.http.connection import HttpRequest
from agentos.models.partial_answer import MAX_TOKEN_COUNT

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
            {"usage": {"input_tokens": 5, "cache_creation_input_tokens": 0, "output_tokens": 5}},
            (5, 5),
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


@pytest.mark.parametrize(
    ("provider", "answer", "expected"),
    [
        (
            "gemini",
            {
                "usageMetadata": {
                    "promptTokenCount": 90,
                    "cachedContentTokenCount": 60,
                    "candidatesTokenCount": 5,
                }
            },
            Usage(1, 90, 5, cache_read_tokens=60),
        ),
        (
            "anthropic",
            {
                "usage": {
                    "input_tokens": 10,
                    "cache_read_input_tokens": 50,
                    "cache_creation_input_tokens": 30,
                    "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 10},
                    "output_tokens": 5,
                }
            },
            Usage(1, 90, 5, cache_read_tokens=50, cache_write_tokens=30, cache_write_long_tokens=10),
        ),
        (
            "openai",
            {
                "usage": {
                    "prompt_tokens": 90,
                    "completion_tokens": 5,
                    "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 20},
                }
            },
            Usage(1, 90, 5, cache_read_tokens=64, cache_write_tokens=20),
        ),
        (
            "openai",
            {
                "type": "response.completed",
                "response": {
                    "usage": {
                        "input_tokens": 90,
                        "output_tokens": 5,
                        "input_tokens_details": {
                            "cached_tokens": 64,
                            "cache_write_tokens": 20,
                            "cache_write_tokens_details": {"ttl_30m_tokens": 12, "ttl_12h_tokens": 8},
                        },
                    }
                },
            },
            Usage(1, 90, 5, cache_read_tokens=64, cache_write_tokens=20, cache_write_long_tokens=8),
        ),
        (
            "openai",
            {"usage": {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 9999}}},
            Usage(1, 10, 0, cache_read_tokens=10),
        ),
    ],
)
def test_cache_reads_and_writes_are_read_from_every_form_of_usage(
    provider: str, answer: dict[str, object], expected: Usage
) -> None:
    whole = json.dumps(answer).encode()
    for body, headers in ((whole, JSON), (b"data: " + whole + b"\n\n", STREAM)):
        reader = UsageReader(DIALECTS[provider], headers)
        reader.feed(body)
        reader.end()
        assert reader.usage(1) == expected


def test_a_stream_that_is_left_counts_the_text_that_passed() -> None:
    reader = UsageReader(DIALECTS["anthropic"], STREAM)
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 25, "output_tokens": 1}}}
    reader.feed(f"data: {json.dumps(start)}\n\n".encode())
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x" * 100}}
    for _ in range(300):
        reader.feed(f"data: {json.dumps(delta)}\n\n".encode())
    assert reader.is_estimate
    assert reader.usage(99) == Usage(1, 25, 7500)


def test_the_repeated_text_at_the_end_of_a_response_is_counted_once() -> None:
    reader = UsageReader(DIALECTS["openai"], STREAM)
    reader.feed(b'data: {"type":"response.output_text.delta","delta":"%s"}\n\n' % (b"x" * 400))
    reader.feed(b'data: {"type":"response.output_text.done","text":"%s"}\n\n' % (b"x" * 400))
    assert reader.usage(7) == Usage(1, 7, 100)


@pytest.mark.parametrize(
    "number", ["1" + "0" * 400, "9" * 5000, "-5", '"many"', "1e308", "null", "2.5", "true", "[7]", "{}"]
)
@pytest.mark.parametrize(
    ("provider", "fields"),
    [
        ("gemini", {"usageMetadata": ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount")}),
        ("anthropic", {"usage": ("input_tokens", "cache_read_input_tokens", "output_tokens")}),
        ("openai", {"usage": ("prompt_tokens", "completion_tokens", "output_tokens")}),
    ],
)
def test_token_counts_that_no_call_can_have_are_bounded(
    provider: str, fields: dict[str, tuple[str, ...]], number: str
) -> None:
    ((name, counts),) = fields.items()
    pairs = ", ".join(f'"{count}": {number}' for count in counts)
    whole = f'{{"{name}": {{{pairs}}}}}'.encode()
    long_body = b'{"data": "' + b"x" * MAX_WHOLE_BYTES + b'", ' + whole[1:]
    for body, headers in ((whole, JSON), (b"data: " + whole + b"\n\n", STREAM), (long_body, JSON)):
        reader = UsageReader(DIALECTS[provider], headers)
        reader.feed(body)
        reader.end()
        usage = reader.usage(1)
        assert usage.calls == 1 and 0 <= usage.input_tokens <= 3 * MAX_TOKEN_COUNT
        assert 0 <= usage.output_tokens <= 3 * MAX_TOKEN_COUNT


def test_a_line_without_end_that_comes_byte_by_byte_costs_bounded_memory_and_time() -> None:
    reader = UsageReader(DIALECTS["openai"], STREAM)
    reader.feed(b"data: " + b"x" * (2 * MAX_LINE_BYTES))
    began = time.process_time()
    for _ in range(20_000):
        reader.feed(b"x")
    assert time.process_time() - began < 1.0 and len(reader._buffer) <= MAX_LINE_BYTES
    reader.feed(b'\ndata: {"usage": {"prompt_tokens": 7, "completion_tokens": 5}}\n')
    assert reader.usage(1) == Usage(1, 7, 5)


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


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(
    "encode",
    [
        lambda key: key,
        lambda key: urllib.parse.quote(key, safe=""),
        lambda key: base64.b64encode(key.encode()).decode(),
        lambda key: base64.b64encode(f"x{key}y".encode()).decode(),
    ],
)
def test_an_encoded_echo_of_the_key_is_redacted(encode: Callable[[str], str], size: int) -> None:
    key = "AIza/canary+key=0123456789"
    redactor, text = StreamRedactor(key), f'{{"echo": "{encode(key)}"}}'.encode()
    passed = b"".join(redactor.feed(text[at : at + size]) for at in range(0, len(text), size))
    passed += redactor.flush()
    shown = passed.decode()
    decoded = urllib.parse.unquote(shown) + str(base64.b64decode(shown[10:-2].replace("*", "A") + "=="))
    assert len(passed) == len(text) and "canary" not in decoded


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_absolute_urls_lead_back_through_the_gateway(size: int) -> None:
    rewriter = UrlRewriter("https://api.example.com", "http://localhost:1/anthropic", "token")
    body = b'{"results_url": "https://api.example.com/v1/x", "other": "https://api.example.net/https:/"}'
    passed = b"".join(rewriter.feed(body[at : at + size]) for at in range(0, len(body), size))
    assert json.loads(passed + rewriter.flush()) == {
        "results_url": "http://localhost:1/anthropic/v1/x",
        "other": "https://api.example.net/https:/",
    }
    headers = (
        ("location", "https://api.example.com/a"),
        ("x-goog-upload-url", "https://api.example.com/b?c=1"),
    )
    assert [value for _, value in rewriter.headers(headers)] == [
        "http://localhost:1/anthropic/a",
        "http://localhost:1/anthropic/b?c=1&key=token",
    ]


def _head(path: str, body: bytes = b"", **headers: str) -> HttpRequest:
    return HttpRequest(
        "POST", path, tuple((name.replace("_", "-"), value) for name, value in headers.items()), body
    )


def test_the_model_of_a_large_or_compressed_request_is_the_outermost_one() -> None:
    decoy = {"role": "user", "content": 'say {"model": "wrong"} ' + "x " * 150_000}
    body = json.dumps({"messages": [decoy, {"model": "wrong"}], "model": "right"}).encode()
    for content, headers in ((body, {}), (gzip.compress(body), {"content_encoding": "gzip"})):
        request = parse_request(_head("/openai/v1/chat/completions", content, **headers))
        assert request and request.model == "right" and request.input_tokens > 70_000


@pytest.mark.parametrize(
    ("path", "unmetered"),
    [
        ("/gemini/upload/v1beta/files", True),
        ("/gemini/v1beta/models/m:batchGenerateContent", True),
        ("/gemini/v1beta/models/m:generateContent", False),
        ("/anthropic/v1/messages/batches", True),
        ("/anthropic/messages", False),
        ("/openai/v1/files", True),
        ("/openai/v1/batches", True),
        ("/openai/v1/responses", False),
    ],
)
def test_files_and_batches_are_not_model_calls(path: str, unmetered: bool) -> None:
    request = parse_request(_head(path))
    assert request and request.is_unmetered is unmetered


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "%2e%2e/x",
        "v1/..;/x",
        "v1/%2E%2e%3bx",
        "v1%2fx",
        "v1/a%5Cb",
        "v1/a\\b",
        "./x",
        "v1/%252e%252e/x",
        "v1/a%25252fb",
        "v1/..%253bx",
        "v1/%c0%ae%C0%AE/x",
    ],
)
def test_paths_that_might_escape_the_provider_are_rejected(path: str) -> None:
    assert parse_request(_head(f"/openai/{path}")) is None


def test_an_agent_reaches_the_gateway_past_a_proxy() -> None:
    variables = client_variables("http://127.0.0.1:1", ("openai",), "token", {"NO_PROXY": "corp,localhost"})
    assert variables["NO_PROXY"] == variables["no_proxy"] == "corp,localhost,127.0.0.1,::1"


def test_a_gateway_can_be_stopped_while_another_thread_reads_from_it() -> None:
    """Another process keeps its pipes open, so the reader is still waiting."""
    shell = subprocess.Popen(
        ["sh", "-c", "sleep 3 & echo ready; read line; echo last"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    gateway = _GatewayProcess(shell, str)
    while not gateway.records:
        gateway.read(None)
    reader = threading.Thread(target=lambda: [gateway.read(None) for _ in range(2)])
    reader.start()
    gateway.stop()
    reader.join()
    gateway.close_pipes()
    assert gateway.records == [b"ready", b"last"]
