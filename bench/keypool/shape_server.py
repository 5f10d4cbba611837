"""An HTTP model server with the limits of one shape, written without the product's own code.

python -m bench.keypool.shape_server NAME SCALE CALLS, and the end of stdin ends it. It speaks as much of Gemini's and OpenAI's
protocols as the clients need; `GET /counts` says what it has admitted and refused.
"""

import asyncio
import contextlib
import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bench.keypool.shape_run import OUTPUT_TOKENS, START, Load, provider
from bench.keypool.shapes import Hint, Shape, shape_named

MODEL = "offline-rules-1"
ANSWER = "Done."
ROOM = 2**20  # bytes of a request
SECRET = "shape-secret-{}-of-a-key"


@dataclass(frozen=True, slots=True)
class Counts:
    admitted: int
    refused: int


@dataclass(frozen=True, slots=True)
class ShapeServer:
    url: str
    secrets: tuple[str, ...]

    def counts(self) -> Counts:
        with urllib.request.urlopen(f"{self.url}/counts") as answer:
            return Counts(**json.load(answer))


@contextlib.contextmanager
def served_shape(name: str, scale: float, calls: int) -> Iterator[ShapeServer]:
    command = [sys.executable, "-m", "bench.keypool.shape_server", name, str(scale), str(calls)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        try:
            secrets = tuple(map(SECRET.format, range(len(shape_named(name).keys))))
            yield ShapeServer(process.stdout.readline().strip(), secrets)
        finally:
            process.stdin.close()


def scaled(shape: Shape, scale: float) -> Shape:
    """The same shape with every duration multiplied."""
    low, high = shape.latency
    return replace(
        shape,
        quotas=tuple(
            tuple(
                replace(limit, seconds=limit.seconds * scale, phase=limit.phase * scale) for limit in limits
            )
            for limits in shape.quotas
        ),
        changes=tuple(
            replace(change, at=change.at * scale, seconds=change.seconds and change.seconds * scale)
            for change in shape.changes
        ),
        concurrency_hint=shape.concurrency_hint and shape.concurrency_hint * scale,
        latency=(low * scale, high * scale),
    )


@dataclass(frozen=True, slots=True)
class _Request:
    path: str
    key: str
    call: int


class _Service:
    """The quotas of all keys. Their clock starts with the first call, as that of the omniscient sender does."""

    def __init__(self, shape: Shape, calls: int) -> None:
        self._shape = shape
        self._load = Load.of(shape, calls, seed=1)
        self._quotas = [provider(shape, place) for place in range(len(shape.quotas))]
        self._first_call: float | None = None
        self._counts = Counts(0, 0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                writer.write(await self._answer(await _read(reader)))
                await writer.drain()
        writer.close()

    async def _answer(self, request: _Request) -> bytes:
        if request.path == "/counts":
            return _response(200, {"admitted": self._counts.admitted, "refused": self._counts.refused})
        now = time.monotonic()
        self._first_call = now if self._first_call is None else self._first_call
        at = START + now - self._first_call
        tokens, latency = self._load.tokens[request.call], self._load.latency[request.call]
        quota = self._quotas[self._shape.keys[int(request.key.split("-")[2])]]
        is_gemini = "generateContent" in request.path
        if quota.wait(at, tokens):
            self._counts = replace(self._counts, refused=self._counts.refused + 1)
            return _refusal(self._hint(quota.hint(at, tokens)), is_gemini=is_gemini)
        quota.admit(at, tokens, at + latency)
        self._counts = replace(self._counts, admitted=self._counts.admitted + 1)
        await asyncio.sleep(now + latency - time.monotonic())
        return _response(200, (_gemini_answer if is_gemini else _openai_answer)(tokens - OUTPUT_TOKENS))

    def _hint(self, wait: float) -> float | None:
        if not wait:
            return self._shape.concurrency_hint
        match self._shape.hint:
            case Hint.EXACT:
                return wait
            case Hint.SECONDS:
                return float(int(wait) + 1)
            case Hint.NONE:
                return None


async def _read(reader: asyncio.StreamReader) -> _Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = re.search(r"(?i)\r\ncontent-length: *(\d+)", head)
    body = await reader.readexactly(int(length[1])) if length else b""
    key = re.search(r"shape-secret-\d+-of-a-key", head)
    # A client may escape or wrap the prompt, but sends its number.
    call = re.search(rb"call \d+-(\d+) ", body)
    return _Request(head.split(" ", 2)[1], key[0] if key else "", int(call[1]) if call else 0)


def _refusal(hint: float | None, *, is_gemini: bool) -> bytes:
    if not is_gemini:
        headers = () if hint is None else (f"retry-after: {hint:.3f}", f"retry-after-ms: {hint * 1000:.0f}")
        error = {"message": "too many requests", "type": "requests", "code": "rate_limit_exceeded"}
        return _response(429, {"error": error}, headers)
    detail = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{hint or 0:.3f}s"}
    details = [] if hint is None else [detail]
    status = {"code": 429, "message": "quota exceeded", "status": "RESOURCE_EXHAUSTED", "details": details}
    return _response(429, {"error": status})


def _gemini_answer(input_tokens: int) -> object:
    used = {"promptTokenCount": input_tokens, "candidatesTokenCount": OUTPUT_TOKENS}
    content = {"role": "model", "parts": [{"text": ANSWER}]}
    return {
        "candidates": [{"content": content, "finishReason": "STOP"}],
        "usageMetadata": {**used, "totalTokenCount": sum(used.values())},
        "modelVersion": MODEL,
    }


def _openai_answer(input_tokens: int) -> object:
    used = {"prompt_tokens": input_tokens, "completion_tokens": OUTPUT_TOKENS}
    message = {"role": "assistant", "content": ANSWER}
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": MODEL,
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {**used, "total_tokens": sum(used.values())},
    }


def _response(status: int, body: object, headers: tuple[str, ...] = ()) -> bytes:
    content = json.dumps(body).encode()
    lines = (
        f"HTTP/1.1 {status} {'OK' if status == 200 else 'Too Many Requests'}",
        "content-type: application/json",
        f"content-length: {len(content)}",
        *headers,
    )
    return "\r\n".join((*lines, "", "")).encode() + content


async def _main(name: str, scale: float, calls: int) -> None:
    service = _Service(scaled(shape_named(name), scale), calls)
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0, limit=ROOM, backlog=1024)
    address, port = server.sockets[0].getsockname()
    print(f"http://{address}:{port}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])))
