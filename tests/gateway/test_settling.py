"""Calls of a program that exits as soon as it has read its answer still count for it."""

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from agentos.config.file import price_list
from agentos.core.protocol.results import Usage
from agentos.gateway.calls_in_flight import CallsInFlight
from agentos.gateway.dialects import DIALECTS
from agentos.gateway.stdin_lines import StdinLines
from agentos.gateway.usage import UsageReader
from agentos.http.connection import Connection, HttpRequest
from tests.scenarios.harness import RunHarness, command_line, wait_until

from .harness import credentials
from .scripted import events as send_events
from .scripted import provider

MODEL = "claude-sonnet-4-5"
START = {
    "type": "message_start",
    "message": {"model": MODEL, "usage": {"input_tokens": 900, "output_tokens": 1}},
}
TEXT = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "word " * 400}}
COUNT = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 77}}
# It leaves with the connection open, as an agent does that is killed or ends in a hurry.
AGENT = """import json, os, signal, socket
from urllib.parse import urlsplit
url = urlsplit(os.environ["ANTHROPIC_BASE_URL"])
body = json.dumps({"model": "claude-sonnet-4-5", "max_tokens": 9, "stream": True, "messages": []})
connection = socket.create_connection((url.hostname, url.port))
head = f"POST {url.path}/v1/messages HTTP/1.1\\r\\nhost: {url.netloc}\\r\\ncontent-length: {len(body)}\\r\\n"
connection.sendall(f"{head}x-api-key: {os.environ['ANTHROPIC_API_KEY']}\\r\\n\\r\\n{body}".encode())
seen = b""
while b"message_stop" not in seen:
    seen += connection.recv(65536)
if os.path.exists("gateway.pid"):
    os.kill(int(open("gateway.pid").read()), signal.SIGSTOP)
os._exit(0)
"""


def event(data: Mapping[str, object]) -> bytes:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


def test_the_last_call_counts_although_the_program_has_left_its_stream(harness: RunHarness) -> None:
    (harness.project / "agent.py").write_text(AGENT)

    async def answer(request: HttpRequest, connection: Connection) -> None:
        await send_events(
            connection, event(START), event(TEXT), event(COUNT), event({"type": "message_stop"})
        )
        await asyncio.sleep(60)  # until the gateway leaves

    with provider(answer) as url:
        variables = credentials(url, harness.keys[:1], "anthropic")
        words = ("a", "b", "c", "--parallel", "3", "--", "python3", "agent.py")
        done = harness.run("exec", *words, program="agentos", **variables)
    assert done.code == 0, done.out
    usage = Usage(3, 2700, 231)
    assert harness.summary()["usage"]["output_tokens"] == usage.output_tokens, "what the provider counted"
    price = price_list().of(MODEL)
    assert price is not None and harness.summary()["cost"] == pytest.approx(price.cost_of(usage))
    assert [item["usage"]["calls"] for item in harness.summary()["items"]] == [1, 1, 1]


def test_an_item_does_not_end_before_a_slow_gateway_has_counted_its_call(harness: RunHarness) -> None:
    (harness.project / "agent.py").write_text(AGENT)
    note = harness.project / "gateway.pid"

    async def answer(request: HttpRequest, connection: Connection) -> None:
        await asyncio.to_thread(wait_until, note.exists)
        await send_events(connection, event(START), event(COUNT), event({"type": "message_stop"}))
        await asyncio.sleep(60)

    with provider(answer) as url:
        variables = credentials(url, harness.keys[:1], "anthropic")
        running = harness.start("exec", "a", "--", "python3", "agent.py", program="agentos", **variables)
        wait_until(lambda: any("agentos gateway" in command_line(one.pid) for one in running.processes()))
        pid = next(one.pid for one in running.processes() if "agentos gateway" in command_line(one.pid))
        (harness.project / "new").write_text(str(pid))
        (harness.project / "new").rename(note)
        wait_until(lambda: harness.events("program_ended"))
        with pytest.raises(AssertionError, match="not within"):  # it waits for the gateway, which is stopped
            wait_until(lambda: harness.events("item_ended"), 0.3)
        os.kill(pid, signal.SIGCONT)
        assert running.wait().code == 0
    assert harness.summary()["usage"]["calls"] == 1 and harness.summary()["usage"]["output_tokens"] == 77


@pytest.mark.parametrize(
    ("dialect", "last"),
    [
        ("anthropic", b'data: {"type":"message_stop"}'),
        ("openai", b"data: [DONE]"),
        (
            "openai",
            b'data: {"type":"response.completed","response":{"usage":{"input_tokens":9,"output_tokens":2}}}',
        ),
        (
            "gemini",
            b'data: {"candidates":[{"content":{},"finishReason":"STOP"}],"usageMetadata":'
            b'{"promptTokenCount":9,"candidatesTokenCount":2}}',
        ),
    ],
)
def test_a_stream_whose_last_event_has_passed_is_not_estimated(dialect: str, last: bytes) -> None:
    reader = UsageReader(DIALECTS[dialect], {"content-type": "text/event-stream"})
    if dialect == "anthropic":
        reader.feed(event(START) + event(COUNT))
    elif last.endswith(b"[DONE]"):
        reader.feed(b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}\n')
    else:
        reader.feed(b'data: {"note":"not over yet: \\"finishReason\\":\\"STOP\\""}\n')
    assert reader.is_estimate
    reader.feed(last + b"\n\n")
    assert not reader.is_estimate


def test_an_item_is_settled_after_its_last_call_or_in_time() -> None:
    async def try_out() -> None:
        settled: asyncio.Queue[str] = asyncio.Queue()
        calls = CallsInFlight(settled.put_nowait, 0.05)
        for item in ("busy", "busy", "stuck"):
            calls.begin(item)
        calls.settle("idle")
        assert await asyncio.wait_for(settled.get(), 5) == "idle"
        calls.settle("busy")
        calls.end("busy")
        assert settled.empty()
        calls.end("busy")
        assert settled.get_nowait() == "busy"
        calls.settle("stuck")
        assert await asyncio.wait_for(settled.get(), 5) == "stuck"
        calls.end("stuck")
        assert settled.empty()

    asyncio.run(try_out())


def test_lines_that_come_together_or_in_parts_are_all_read(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    lines = StdinLines(reading)
    os.write(writing, b'{"seed": 1}\n"a"\n"b')
    assert (lines.next(), lines.next()) == (b'{"seed": 1}\n', b'"a"\n')
    os.write(writing, b'"\nrest')
    os.close(writing)
    assert (lines.next(), lines.next(), lines.next()) == (b'"b"\n', b"rest", b"")
    os.close(reading)
