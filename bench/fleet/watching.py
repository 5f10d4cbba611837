"""How late events are on the follower's screen: of a real run, and with 2,000 events a second from two writers."""

import json
import statistics
import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import psycopg
from tests.fleet.harness import PROGRAMS, Fleet

from agentos.core.protocol import events
from agentos.core.text.secrets import Secret
from agentos.storage.postgres.event_writer import EventWriter, ItemClaim
from bench.fleet.figures import Figure, bench_fleet

RATE = 2000  # events a second
SECONDS = 10.0
TICK = 0.05  # seconds
ITEMS = 10


@dataclass
class JsonFollower:
    """`lld-workflow --all --fleet --json`; `delays` are the seconds from each event to its line."""

    fleet: Fleet
    delays: list[float] = field(default_factory=list)
    lines: int = 0

    def __post_init__(self) -> None:
        self._seen = threading.Event()
        self.process = subprocess.Popen(
            [PROGRAMS / "lld-workflow", "--all", "--fleet", "--json"],
            env=self.fleet.environment("home"),
            cwd=self.fleet.project,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            now = time.time()
            event = json.loads(line)
            self._seen.set()
            if _is_from_a_worker(event):
                self.lines += 1
                self.delays.append(now - float(event["at"]))

    def wait_until_it_follows(self) -> None:
        assert self._seen.wait(60)

    def end(self) -> None:
        self.process.wait(120)
        self._thread.join(10)
        assert self.process.stdout
        self.process.stdout.close()


def _is_from_a_worker(event: dict[str, Any]) -> bool:
    return event["type"] in (
        "node_started",
        "node_finished",
        "lease_granted",
        "call_completed",
        "line_written",
    )


def measure() -> list[Figure]:
    with bench_fleet("0.3,0.9") as fleet:
        real = _of_a_run(fleet)
    with bench_fleet("1,1") as fleet:
        flood, missing = _of_a_flood(fleet)
    return [
        *_figures("events of a run", real),
        *_figures(f"{RATE} events a second", flood),
        Figure(f"of {RATE * SECONDS:.0f} events, not on the screen 5 s after the last", missing, "", 0),
    ]


def _figures(name: str, delays: list[float]) -> list[Figure]:
    ordered = sorted(delays)
    return [
        Figure(f"{name}: on the screen after, in the median", statistics.median(ordered), "s"),
        Figure(f"{name}: 99 of 100 after", ordered[len(ordered) * 99 // 100], "s", 1),
        Figure(f"{name}: the last one after", ordered[-1], "s", 1),
    ]


def _of_a_run(fleet: Fleet) -> list[float]:
    fleet.issues(*range(1, 13))
    fleet.worker(parallel=3)
    fleet.worker(parallel=3)
    follower = JsonFollower(fleet)
    follower.end()
    assert follower.process.returncode == 0
    return follower.delays


def _of_a_flood(fleet: Fleet) -> tuple[list[float], int]:
    """No worker: we claim the items, and write what a worker would."""
    fleet.issues(*range(1, ITEMS + 1))
    assert fleet.run("lld-workflow", "--all", "--fleet", "--detach").returncode == 0
    with psycopg.connect(fleet.database) as connection:
        connection.execute("UPDATE agentos_items SET claim = ARRAY[submission, 1, 1], state = 'running'")
        row = connection.execute("SELECT max(submission) FROM agentos_items").fetchone()
        assert row is not None
    claims = [ItemClaim(f"{fleet.name}/LLD-{n}", (int(row[0]), 1, 1)) for n in range(1, ITEMS + 1)]
    follower = JsonFollower(fleet)
    follower.wait_until_it_follows()
    writers = [EventWriter(Secret(fleet.database), str) for _ in range(2)]
    written = _write(writers, claims)
    deadline = time.monotonic() + 5
    while follower.lines < written and time.monotonic() < deadline:
        time.sleep(TICK)
    missing = written - follower.lines
    for writer in writers:
        writer.close(5)
    follower.process.kill()
    follower.end()
    return follower.delays, missing


def _write(writers: list[EventWriter], claims: list[ItemClaim]) -> int:
    """RATE events a second, spread over the items; each item has one writer."""
    began, written = time.monotonic(), 0
    while (passed := time.monotonic() - began) < SECONDS:
        while written < passed * RATE:
            which = written % len(claims)
            claim = claims[which]
            event = events.LineWritten(claim.thread_id.partition("/")[2], f"line {written} of a program")
            writers[which % len(writers)].write(claim, event, round(time.time(), 3))
            written += 1
        time.sleep(TICK)
    return written
