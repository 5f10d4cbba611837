"""Runs the same backlog with and without 200 clients of the page, alternating, and checks that no client lost an event.

python -m bench.page [--clients N] [--items N] [--rounds N] [--latency MIN,MAX]

Of the clients, a fifth reads slowly and a fifth reconnects after every 40 events with Last-Event-ID. They run in one
process of the lowest priority: on a real machine they would be browsers elsewhere.
"""

import argparse
import asyncio
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.project import BenchProject, bench_project

SLOW_READ, SLOW_PAUSE = 2048, 0.05  # bytes, seconds
RECONNECT_AFTER = 40  # events
JOIN_TIMEOUT = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    bearer: str
    run: str


class Client:
    """Follows one run to its end and digests every event, in order."""

    def __init__(self, address: Address, kind: str) -> None:
        self._address = address
        self._kind = kind
        self._last = ""
        self._since_connect = 0
        self._rest = b""
        self.events = 0
        self.reconnects = 0
        self.digest = hashlib.sha256()
        self.ended = False

    async def follow(self) -> None:
        while not self.ended:
            try:
                await self._connect()
            except (OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.2)

    async def _connect(self) -> None:
        address = self._address
        limit = SLOW_READ if self._kind == "slow" else 2**16
        reader, writer = await asyncio.open_connection(address.host, address.port, limit=limit)
        self._since_connect, self._rest = 0, b""
        try:
            head = f"GET /api/runs/{address.run}/events HTTP/1.1\r\nHost: {address.host}:{address.port}\r\n"
            head += f"Authorization: Bearer {address.bearer}\r\nLast-Event-ID: {self._last}\r\n\r\n"
            writer.write(head.encode())
            await reader.readuntil(b"\r\n\r\n")
            await self._read(reader)
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while not self.ended:
            size = int(await reader.readline() or b"0", 16)
            if not size:
                return
            body = b""
            while len(body) < size + 2:
                part = await reader.read(
                    min(SLOW_READ, size + 2 - len(body)) if self._kind == "slow" else size + 2 - len(body)
                )
                if not part:
                    return
                body += part
                if self._kind == "slow":
                    await asyncio.sleep(SLOW_PAUSE)
            self._handle(body[:size])
            if self._kind == "reconnecting" and self._since_connect >= RECONNECT_AFTER:
                self.reconnects += 1
                return

    def _handle(self, content: bytes) -> None:
        *messages, self._rest = (self._rest + content).split(b"\n\n")
        for message in messages:
            fields = dict(line.split(b": ", 1) for line in message.split(b"\n") if b": " in line)
            if fields.get(b"event") == b"journal":
                self._last = fields[b"id"].decode()
                self.digest.update(self._last.encode())
                self.events += 1
                self._since_connect += 1
            elif fields.get(b"event") == b"end":
                self.ended = True


async def follow_all(address: Address, count: int) -> list[Client]:
    kinds = ["slow" if n % 5 == 0 else "reconnecting" if n % 5 == 1 else "usual" for n in range(count)]
    clients = [Client(address, kind) for kind in kinds]
    await asyncio.gather(*(client.follow() for client in clients))
    return clients


def clients_process(arguments: argparse.Namespace) -> None:
    """The child: follows the newest run with all clients and prints what they saw as JSON."""
    os.nice(19)
    url, bearer = arguments.url, arguments.bearer
    address = Address("127.0.0.1", int(url.rsplit(":", 1)[1]), bearer, wait_for_run(url, bearer))
    clients = asyncio.run(follow_all(address, arguments.clients))
    seen = {(client.events, client.digest.hexdigest()) for client in clients}
    print(
        json.dumps(
            {
                "run": address.run,
                "seen": [list(entry) for entry in seen],
                "reconnects": sum(client.reconnects for client in clients),
            }
        )
    )


def wait_for_run(url: str, bearer: str) -> str:
    deadline = time.monotonic() + JOIN_TIMEOUT
    while time.monotonic() < deadline:
        request = urllib.request.Request(f"{url}/api/runs", headers={"authorization": f"Bearer {bearer}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            runs: list[dict[str, Any]] = json.load(answer)["runs"]
        if live := [run["run"] for run in runs if run["state"] == "running"]:
            return str(live[0])
        time.sleep(0.05)
    raise TimeoutError("no run started")


def measure(bench: BenchProject, arguments: argparse.Namespace, clients: int) -> float:
    """Run the backlog with this many clients connected; return the seconds it took."""
    for path in (bench.project / "docs").rglob("*.md") if (bench.project / "docs").exists() else ():
        path.unlink()
    if not clients:
        return run_once(bench, arguments)
    page = subprocess.Popen(
        [sys.executable, "-m", "agentos", "page", "--die-with-parent"],
        env=bench.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert page.stdin and page.stdout
    try:
        url, token = page.stdout.readline().strip().split("/login#")
        watching = subprocess.Popen(
            [sys.executable, "-m", "bench.page", f"--url={url}", f"--bearer={token}", f"--clients={clients}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        seconds = run_once(bench, arguments)
        said, _ = watching.communicate(timeout=120)
        check(bench, json.loads(said), clients)
        return seconds
    finally:
        page.stdin.close()
        page.wait(10)
        page.stdout.close()


def run_once(bench: BenchProject, arguments: argparse.Namespace) -> float:
    done = bench.run("--all", "--parallel", "5", "--display", "none")
    assert done.returncode == 0, done.stdout + done.stderr
    return float(str(bench.summary()["seconds"]))


def check(bench: BenchProject, seen: dict[str, Any], clients: int) -> None:
    """Every client saw every line of the journal, once and in order."""
    journal = Path(bench.environment["AGENTOS_HOME"]) / "logs/parallel" / seen["run"] / "events.jsonl"
    digest, offset, count = hashlib.sha256(), 0, 0
    for line in journal.read_bytes().splitlines(keepends=True):
        offset, count = offset + len(line), count + 1
        digest.update(str(offset).encode())
    assert seen["seen"] == [[count, digest.hexdigest()]], (
        f"a client lost events: {seen['seen']}, journal {count}"
    )
    print(f"    {clients} clients, {seen['reconnects']} reconnections: each saw all {count} events in order")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--items", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency", default="0.5,0.7")
    parser.add_argument("--url")
    parser.add_argument("--bearer")
    arguments = parser.parse_args()
    if arguments.url:
        clients_process(arguments)
        return
    alone, watched = [], []
    flags = ["--latency", arguments.latency, "--seed", "7", "--keys", "8"]
    with bench_project(arguments.items, flags) as bench:
        run_once(bench, arguments)  # fills the caches of the machine
        for number in range(arguments.rounds):
            alone.append(measure(bench, arguments, 0))
            watched.append(measure(bench, arguments, arguments.clients))
            print(f"round {number + 1}: alone {alone[-1]:.1f} s, watched {watched[-1]:.1f} s", flush=True)
    change = 100 * (statistics.median(watched) / statistics.median(alone) - 1)
    print(
        f"{arguments.items} items, 5 workers: alone {statistics.median(alone):.1f} s, with {arguments.clients} clients "
        f"{statistics.median(watched):.1f} s ({change:+.1f} %)"
    )


if __name__ == "__main__":
    main()
