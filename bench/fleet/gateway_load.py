"""The shared gateway under load: calls per second of a core, the time it adds for 300 callers, and its return after kill -9."""

import asyncio
import contextlib
import json
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.fleet.servers import GatewayServer

from bench.fleet.figures import Figure, model_server, write_credentials

MODEL = "gemini-2.5-flash"
BODY = json.dumps({"contents": [{"role": "user", "parts": [{"text": "Say something. " * 40}]}]}).encode()
CALLERS = 300
CALLS_EACH = 5
CONNECTIONS = 20
CALLS = 4000
KEYS = 10


def measure() -> list[Figure]:
    with _gateway("0,0") as (_, gateway, environment):
        per_second = asyncio.run(_calls_per_core_second(gateway))
        back = _return_after_kill(gateway, environment)
    with _gateway("1,1") as (direct, gateway, _):
        through = Target(gateway.port, "/gemini", gateway.token)
        before = _cpu_seconds(gateway.pid)
        alone, added = asyncio.run(_callers(direct)), asyncio.run(_callers(through))
        calls = CALLERS * (CALLS_EACH + 1)
        cpu = (_cpu_seconds(gateway.pid) - before) / calls
        burst = asyncio.run(_callers(through, is_burst=True)) - asyncio.run(_callers(direct, is_burst=True))
    return [
        Figure("gateway: calls per second of a core", per_second, "", 500, at_least=True),
        Figure("gateway: a call succeeds again after a kill -9 within", back, "s", 3),
        Figure(f"{CALLERS} callers of 1 s calls, median directly", alone * 1e3, "ms"),
        Figure(
            f"{CALLERS} callers of 1 s calls, median more through the gateway",
            (added - alone) * 1e3,
            "ms",
            20,
        ),
        Figure("the same if all of them call at the same moment", burst * 1e3, "ms"),
        Figure("CPU time of the gateway for each of these calls", cpu * 1e3, "ms"),
    ]


@dataclass(frozen=True, slots=True)
class Target:
    port: int
    prefix: str
    key: str


@contextlib.contextmanager
def _gateway(latency: str) -> Iterator[tuple[Target, GatewayServer, dict[str, str]]]:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentos-bench-")))
        url, keys = stack.enter_context(model_server(folder, "--keys", str(KEYS), "--latency", latency))
        write_credentials(folder / "gateway", url, keys, CALLERS // KEYS + 10)
        gateway = GatewayServer(folder / "gateway")
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"}
        stack.callback(gateway.stop)
        gateway.start(environment)
        yield Target(int(url.rpartition(":")[2]), "", keys[0]), gateway, environment


async def _calls_per_core_second(gateway: GatewayServer) -> float:
    """CPU time of the gateway's process, whatever else the machine does."""
    target = Target(gateway.port, "/gemini", gateway.token)
    await asyncio.gather(*(_caller(target, 10) for _ in range(CONNECTIONS)))
    before = _cpu_seconds(gateway.pid)
    await asyncio.gather(*(_caller(target, CALLS // CONNECTIONS) for _ in range(CONNECTIONS)))
    return CALLS / (_cpu_seconds(gateway.pid) - before)


async def _callers(target: Target, *, is_burst: bool = False) -> float:
    """The median call time with all callers active, their calls spread evenly, or all sent at the same moment.

    Each connection is opened by a call that is not counted. Otherwise the delays of the first second would last: as all
    calls take equally long, callers that are delayed together stay together.
    """
    barrier = asyncio.Barrier(CALLERS)
    found = await asyncio.gather(
        *(
            _caller(target, CALLS_EACH, 0.0 if is_burst else number / CALLERS, barrier)
            for number in range(CALLERS)
        )
    )
    return statistics.median(seconds for times in found for seconds in times)


async def _caller(
    target: Target, calls: int, delay: float = 0.0, barrier: asyncio.Barrier | None = None
) -> list[float]:
    """Calls one after the other on a connection of its own; with a barrier, after a first one that is not counted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
    if barrier:
        await _call(target, reader, writer)
        await barrier.wait()
    await asyncio.sleep(delay)
    seconds = [await _call(target, reader, writer) for _ in range(calls)]
    writer.close()
    return seconds


async def _call(target: Target, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> float:
    head = (
        f"POST {target.prefix}/v1beta/models/{MODEL}:generateContent HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"x-goog-api-key: {target.key}\r\nContent-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
    )
    began = time.perf_counter()
    writer.write(head.encode() + BODY)
    status = await _answer(reader)
    assert status == 200, f"{target.prefix or 'direct'}: {status}"
    return time.perf_counter() - began


async def _answer(reader: asyncio.StreamReader) -> int:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    if "transfer-encoding: chunked" in head:
        while size := int((await reader.readline()).strip() or b"0", 16):
            await reader.readexactly(size + 2)
        await reader.readline()
    else:
        await reader.readexactly(int(head.partition("content-length:")[2].split()[0]))
    return int(head.split()[1])


def _return_after_kill(gateway: GatewayServer, environment: dict[str, str]) -> float:
    """With a supervisor that starts it again at once."""
    target = Target(gateway.port, "/gemini", gateway.token)
    began = time.monotonic()
    gateway.stop(signal.SIGKILL)
    gateway.start(environment)
    asyncio.run(_caller(target, 1))
    return time.monotonic() - began


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
