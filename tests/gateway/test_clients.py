"""Clients that disconnect, read slowly, send large bodies or are not authenticated."""

import asyncio
import contextlib
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agentos.http.connection import Connection, HttpRequest
from agentos.http.server import listening
from tests.gateway import scripted
from tests.gateway.harness import PROVIDERS, RunningGateway, gateway, gemini_body
from tests.scenarios.harness import KEYS, RunHarness, wait_until

PATHS = {
    "gemini": "/gemini/v1beta/models/m:generateContent",
    "anthropic": "/anthropic/v1/messages",
    "openai": "/openai/v1/chat/completions",
}


def request(gate: RunningGateway, method: str = "generateContent", body: bytes | None = None) -> bytes:
    content = gemini_body() if body is None else body
    head = (
        f"POST /gemini/v1beta/models/m:{method} HTTP/1.1\r\nHost: localhost\r\n"
        f"x-goog-api-key: {gate.token}\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def memory(gate: RunningGateway) -> int:
    """Resident memory of the gateway's process, in bytes."""
    lines = Path(f"/proc/{gate.running.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def read_until(wire: socket.socket, mark: bytes) -> bytes:
    found = b""
    while mark not in found and (data := wire.recv(65536)):
        found += data
    return found


class _Empty(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def tls_provider(folder: Path) -> Iterator[tuple[str, Path]]:
    """A provider with a self-signed certificate; yields its URL and the certificate."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=provider",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Empty)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_address[1]}", certificate
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("kind", ["hang", "drip"])
def test_a_client_that_disconnects_frees_its_key_and_ends_the_call(harness: RunHarness, kind: str) -> None:
    """Both before the first byte and during the response; the only key is free for the next call."""
    server = harness.server(fault={"kind": kind, "nth": 1, "seconds": 20}, keys=KEYS[:1])
    with gateway(harness, "--max-wait", "10s") as gate:
        with gate.connect() as wire:
            wire.sendall(request(gate, "streamGenerateContent?alt=sse"))
            if kind == "drip":
                assert read_until(wire, b"data:")
            wait_until(lambda: len(server.calls()) == 1)
        assert gate.ask().status == 200
        wait_until(lambda: [call["ending"] for call in server.calls()] == ["dropped", "complete"])
        gate.wait_for("client disconnected")


def test_a_client_that_disconnects_while_waiting_is_forgotten(harness: RunHarness) -> None:
    server = harness.server("--latency", "1,1", keys=KEYS[:1])
    with gateway(harness) as gate, gate.connect() as first:
        first.sendall(request(gate))
        wait_until(lambda: len(server.calls()) == 1)
        with gate.connect() as second:
            second.sendall(request(gate))
        gate.wait_for("client disconnected")
        assert b"200" in read_until(first, b"responseId")
        assert gate.ask().status == 200
        assert len(server.calls()) == 2


def test_a_slow_reader_applies_backpressure_to_the_provider(harness: RunHarness) -> None:
    megabytes = 60
    sent = 0

    async def respond(incoming: HttpRequest, out: Connection) -> None:
        nonlocal sent
        out.begin(200, [("content-type", "text/event-stream")])
        for _ in range(megabytes):
            out.put(b": " + b"x" * (1024 * 1024 - 4) + b"\n\n")
            await out.flush()
            sent += 1
        out.finish()

    harness.keys = KEYS[:1]
    with scripted.provider(respond) as url, gateway(harness, url=url) as gate, gate.connect() as wire:
        before = memory(gate)
        wire.sendall(request(gate, "streamGenerateContent?alt=sse"))
        wait_until(lambda: sent > 0)
        stood = _settled(lambda: sent)
        assert stood < megabytes / 2
        assert memory(gate) - before < 25 * 1024 * 1024
        got = 0
        while got < megabytes * 1024 * 1024:
            data = wire.recv(1 << 20)
            assert data
            got += len(data)
        assert memory(gate) - before < 25 * 1024 * 1024


def test_chunks_of_a_stream_are_forwarded_as_they_arrive(harness: RunHarness) -> None:
    harness.server(fault={"kind": "drip", "nth": 1, "seconds": 60})
    with gateway(harness) as gate, gate.connect() as wire:
        wire.sendall(request(gate, "streamGenerateContent?alt=sse"))
        began = time.monotonic()
        assert read_until(wire, b"data:")
        assert time.monotonic() - began < 20


def test_a_large_body_is_sent_again_with_the_second_key(harness: RunHarness) -> None:
    server = harness.server(fault={"kind": "429-bare", "nth": 1})
    with gateway(harness) as gate:
        body = gemini_body("word " * 800_000)
        reply = gate.call("POST", "/gemini/v1beta/models/m:countTokens", body, x_goog_api_key=gate.token)
        assert reply.json["totalTokens"] > 900_000
        reply = gate.call("POST", "/gemini/v1beta/models/m:generateContent", body, x_goog_api_key=gate.token)
        assert reply.status == 200 and reply.json["usageMetadata"]["promptTokenCount"] > 900_000
        assert [call["status"] for call in server.calls()] == [200, 429, 200]


# Authentication


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_request_without_a_valid_token_is_rejected(harness: RunHarness, provider: str) -> None:
    server = harness.server()
    with gateway(harness, provider=provider) as gate:
        stolen = gate.token[:-1] + ("0" if gate.token[-1] != "0" else "1")
        for token in ("", "Bearer", KEYS[0], stolen, gate.token.replace("agentos", "other")):
            reply = gate.call("POST", PATHS[provider], b"{}", x_api_key=token)
            assert reply.status == 401 and "invalid token" in reply.json["error"]["message"]
        assert server.calls() == []


def test_a_token_of_another_gateway_is_rejected(harness: RunHarness) -> None:
    harness.server()
    with gateway(harness) as first, gateway(harness) as other:
        assert first.ask(x_goog_api_key=other.token).status == 401


def test_only_loopback_host_names_are_accepted(harness: RunHarness) -> None:
    harness.server()
    with gateway(harness) as gate:
        assert gate.ask(Host="evil.example").status == 403
        assert gate.ask(Host="127.0.0.1.evil.example").status == 403
        assert gate.ask(Host="localhost:1").status == 200


def test_the_token_is_accepted_wherever_an_sdk_puts_it(harness: RunHarness) -> None:
    harness.server()
    with gateway(harness) as gate:
        path = "/gemini/v1beta/models"
        assert gate.call("GET", f"{path}?pageSize=5&key={gate.token}").status == 200
        assert gate.call("GET", path, authorization=f"Bearer {gate.token}").status == 200
        assert gate.call("GET", path, x_api_key=gate.token).status == 200
        assert gate.token not in gate.stderr


def test_headers_are_forwarded_except_credentials_and_hop_by_hop_headers(harness: RunHarness) -> None:
    seen: list[HttpRequest] = []

    async def respond(incoming: HttpRequest, out: Connection) -> None:
        seen.append(incoming)
        headers = ("x-custom", f"not {KEYS[0]}"), ("keep-alive", "9"), ("x-goog-thing", "yes")
        scripted.whole(out, 200, b"{}", *headers)

    harness.keys = KEYS[:1]
    with scripted.provider(respond) as url, gateway(harness, url=f"{url}/base/") as gate:
        reply = gate.call(
            "PATCH",
            f"/gemini/v1beta/cachedContents/a%20b?alt=x&key={gate.token}&b=%20",
            b"{}",
            x_own="mine",
            authorization="Bearer theirs",
            te="trailers",
            accept_encoding="br",
        )
    headers = dict(seen[0].headers)
    assert (seen[0].method, seen[0].target) == ("PATCH", "/base/v1beta/cachedContents/a%20b?alt=x&b=%20")
    assert headers["x-own"] == "mine" and headers["x-goog-api-key"] == KEYS[0]
    assert headers["accept-encoding"] == "identity" and headers["host"] == url.removeprefix("http://")
    assert not {"authorization", "te"} & headers.keys()
    assert gate.token not in str(seen[0])
    assert reply.headers["x-goog-thing"] == "yes"
    assert "keep-alive" not in {name.lower() for name in reply.headers}
    assert KEYS[0] not in str(reply.headers)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 404),
        ("/mistral/v1/chat", 404),
        ("/gemini/../openai/v1/models", 404),
        ("/gemini/%2e%2E/secret", 404),
        ("/gemini/v1beta/unheard-of", 404),
        ("/gemini/v1beta/models", 200),
    ],
)
def test_only_paths_below_a_provider_are_forwarded(harness: RunHarness, path: str, status: int) -> None:
    harness.server()
    with gateway(harness) as gate:
        assert gate.call("GET", path, x_goog_api_key=gate.token).status == status


def test_a_websocket_upgrade_is_refused(harness: RunHarness) -> None:
    harness.server()
    with gateway(harness) as gate, gate.connect() as wire:
        wire.sendall(
            b"GET /openai/v1/realtime HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\n"
            b"Upgrade: websocket\r\nAuthorization: Bearer " + gate.token.encode() + b"\r\n\r\n"
        )
        assert b"HTTP/1.1 426" in read_until(wire, b"WebSockets are not supported")


def test_an_offer_to_switch_to_http_2_is_ignored(harness: RunHarness) -> None:
    harness.server()
    with gateway(harness) as gate:
        assert (
            gate.ask(Upgrade="h2c", Connection="Upgrade, HTTP2-Settings", HTTP2_Settings="AAMAAABk").status
            == 200
        )


def test_a_head_request_without_a_token_is_answered(harness: RunHarness) -> None:
    harness.server()
    with gateway(harness) as gate:
        assert gate.call("HEAD", "/anthropic").status == 200
        assert gate.call("HEAD", "/").status == 404
        assert gate.call("GET", "/anthropic/v1/models").status == 401
        assert "Traceback" not in gate.stderr


def test_the_body_of_a_request_without_a_token_is_not_kept_in_memory(harness: RunHarness) -> None:
    """Six strangers send 20 MB each; all get their 401, and the gateway serves the next request."""
    harness.server()
    chunk = b"x" * 65536
    with gateway(harness) as gate:
        before = memory(gate)
        for _ in range(6):
            with gate.connect() as wire:
                wire.sendall(
                    b"POST /openai/v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20971520\r\n\r\n"
                )
                assert b"HTTP/1.1 401" in read_until(wire, b"invalid token")
                with contextlib.suppress(OSError):
                    for _ in range(320):
                        wire.sendall(chunk)
        assert memory(gate) - before < 15 << 20
        assert gate.ask().status == 200


def test_headers_have_a_time_limit_at_first_and_between_requests() -> None:
    async def answer(request: HttpRequest, connection: Connection) -> None:
        connection.begin(204, ())
        connection.finish()

    async def try_out() -> None:
        async with listening(answer, head_timeout=0.2) as url:
            address = urlsplit(url)
            for sent in (b"", b"GET / HTTP/1.1\r\nhost: x\r\n", b"GET / HTTP/1.1\r\nhost: x\r\n\r\nGET / HT"):
                reader, writer = await asyncio.open_connection(address.hostname, address.port)
                writer.write(sent)
                with contextlib.suppress(ConnectionError):
                    received = await asyncio.wait_for(reader.read(), 20)  # until the server has left
                    assert received.startswith(b"HTTP/1.1 204") is sent.endswith(b"GET / HT")
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()

    asyncio.run(try_out())


@pytest.mark.slow
def test_a_refused_connection_and_an_unknown_host_are_told_apart(harness: RunHarness) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{closed.getsockname()[1]}"
    for name, expected in ((host, "refused the connection"), ("host.invalid", "cannot be resolved")):
        with gateway(harness, provider="openai", url=f"http://{name}/v1") as gate:
            body = json.dumps({"model": "m", "messages": []}).encode()
            reply = gate.call(
                "POST", "/openai/v1/chat/completions", body, authorization=f"Bearer {gate.token}"
            )
            assert reply.status == 503 and f"{name} {expected}".encode() in reply.body


@pytest.mark.slow
def test_a_certificate_that_is_not_trusted_is_named_and_can_be_trusted(
    harness: RunHarness, tmp_path: Path
) -> None:
    with tls_provider(tmp_path) as (url, certificate):
        for trusted, status in (("", 503), ("REQUESTS_CA_BUNDLE", 200), ("SSL_CERT_FILE", 200)):
            harness.extra_env.clear()
            if trusted:
                harness.extra_env[trusted] = str(certificate)
            with gateway(harness, provider="openai", url=f"{url}/v1") as gate:
                reply = gate.call("GET", "/openai/v1/models", authorization=f"Bearer {gate.token}")
                assert reply.status == status
                assert trusted or (b"is not trusted" in reply.body and b"SSL_CERT_FILE" in reply.body)


@pytest.mark.slow
def test_a_certificate_for_another_host_is_told_from_a_private_authority(
    harness: RunHarness, tmp_path: Path
) -> None:
    with tls_provider(tmp_path) as (url, certificate):
        harness.extra_env["SSL_CERT_FILE"] = str(certificate)
        other = url.replace("127.0.0.1", "localhost")
        with gateway(harness, provider="openai", url=f"{other}/v1") as gate:
            reply = gate.call("GET", "/openai/v1/models", authorization=f"Bearer {gate.token}")
            assert reply.status == 503 and b"not valid for 'localhost'" in reply.body
            assert b"private CA" not in reply.body


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_a_missing_file_of_certificates_is_named(harness: RunHarness, tmp_path: Path, name: str) -> None:
    with tls_provider(tmp_path) as (url, _):
        harness.extra_env[name] = "/nonexistent/ca.pem"
        with gateway(harness, provider="openai", url=f"{url}/v1") as gate:
            reply = gate.call("GET", "/openai/v1/models", authorization=f"Bearer {gate.token}")
            assert reply.status == 503
            assert f"{name} is /nonexistent/ca.pem, which does not exist".encode() in reply.body


def test_keys_appear_in_no_output_and_core_dumps_are_disabled(harness: RunHarness) -> None:
    harness.server(fault={"kind": "400", "nth": 1, "message": f"bad {KEYS[0]}"})
    with gateway(harness) as gate:
        replies = [gate.ask(), gate.ask(), gate.call("GET", f"/gemini/x?key={KEYS[1]}")]
        everything = gate.stderr + gate.running.out + json.dumps([str(reply) for reply in replies])
        assert "[GATEWAY]" in everything and "*****" in everything
        assert not any(key in everything for key in KEYS)
        limits = Path(f"/proc/{gate.running.pid}/limits").read_text().splitlines()
        assert [line.split()[4:6] for line in limits if line.startswith("Max core file")] == [["0", "0"]]


def _settled(value: Callable[[], int]) -> int:
    """The value once it has not changed for half a second."""
    seen, since = value(), time.monotonic()
    while time.monotonic() - since < 0.5:
        time.sleep(0.05)
        if (now := value()) != seen:
            seen, since = now, time.monotonic()
    return seen
