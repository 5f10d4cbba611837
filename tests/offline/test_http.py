"""The server at the level of bytes on a socket."""

import asyncio
import json
import socket
from urllib.parse import urlsplit

from agentos.offline.config import Latency, ServerConfig

from .serving import ISSUE, KEYS, Running, running

BODY = json.dumps({"contents": [{"parts": [{"text": ISSUE}]}]}).encode()


def request(body: bytes = BODY, *extra: str) -> bytes:
    lines = [
        "POST /v1beta/models/any:generateContent HTTP/1.1",
        "Host: 127.0.0.1",
        f"x-goog-api-key: {KEYS[0].secret}",
        f"Content-Length: {len(body)}",
        *extra,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def connect(server: Running) -> socket.socket:
    where = urlsplit(server.url)
    return socket.create_connection((where.hostname, where.port), timeout=5)


def read_until(wire: socket.socket, mark: bytes) -> bytes:
    found = b""
    while mark not in found and (data := wire.recv(65536)):
        found += data
    return found


def test_one_connection_serves_many_requests_even_pipelined() -> None:
    with running() as server, connect(server) as wire:
        wire.sendall(request() * 3)
        found = b""
        while found.count(b'"responseId"') < 3:
            found += wire.recv(65536)
        assert found.count(b"HTTP/1.1 200") == 3


def test_a_client_that_expects_100_continue_gets_it() -> None:
    head = request(BODY, "Expect: 100-continue").removesuffix(BODY)
    with running() as server, connect(server) as wire:
        wire.sendall(head)
        assert b"100" in read_until(wire, b"\r\n\r\n")
        wire.sendall(BODY)
        assert b"HTTP/1.1 200" in read_until(wire, b"responseId")


def test_invalid_http_is_refused_and_closed() -> None:
    with running() as server, connect(server) as wire:
        wire.sendall(b"GET / HTTP/9.9 nonsense\r\n\r\n")
        assert b" 400 " in read_until(wire, b"never")


def test_a_body_that_is_too_large_is_refused_and_closed() -> None:
    with running() as server, connect(server) as wire:
        wire.sendall(request(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked"))
        piece = b"100000\r\n" + b"a" * 0x100000 + b"\r\n"
        try:
            for _ in range(34):
                wire.sendall(piece)
            assert b" 413 " in read_until(wire, b"never")
        except ConnectionError:
            pass
        assert server.ask().text


def test_hundreds_of_connections_are_served_concurrently() -> None:
    async def one(host: str, port: int) -> bytes:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(request(BODY, "Connection: close"))
        answer = await reader.read()
        writer.close()
        return answer

    async def all_of_them(url: str) -> list[bytes]:
        where = urlsplit(url)
        assert where.hostname and where.port
        return await asyncio.gather(*(one(where.hostname, where.port) for _ in range(300)))

    with running(ServerConfig(latency=Latency(0.5, 0.5))) as server:
        answers = asyncio.run(asyncio.wait_for(all_of_them(server.url), 10))
        call_log = server.ledger()
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)
    assert call_log["max_concurrent"] == {"key-1": 300}
