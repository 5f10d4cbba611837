"""Kills the coordinator, worker or gateway of an `agentos exec` at its n-th durable call."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.killing import Sweep, check_killed, readable, shim_of, sound
from tests.chaos.leftovers import leftovers
from tests.scenarios.harness import ModelServer, RunHarness, RunningCommand, title_of

AGENT = """
import fcntl, json, os, sys, urllib.request
ledger, item = sys.argv[1:]
def record(what):
    line = json.dumps({"what": what, "item": item, "pid": os.getpid()}) + "\\n"
    file = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, line.encode())
    os.close(file)
lock = os.open(f"{ledger}-{item}", os.O_RDWR | os.O_CREAT, 0o600)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    record("crowded")
record("started")
text = f"<issue>\\n# Thing {item} can be used\\n</issue>\\n"
body = json.dumps({"contents": [{"parts": [{"text": text}]}]}).encode()
url = os.environ["GEMINI_BASE_URL"] + "/v1beta/models/gemini-2.5-pro:generateContent"
headers = {"x-goog-api-key": os.environ["GEMINI_API_KEY"], "content-type": "application/json"}
try:
    urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=20).read()
except OSError as error:
    sys.exit(f"no answer: {error}")
record("finished")
"""
COORDINATOR, WORKER, GATEWAY = "coordinator", "worker", "gateway"


@dataclass(frozen=True, slots=True)
class Programs:
    """Runs a program that records its own starts and ends in a file that agentos does not know."""

    harness: RunHarness

    @property
    def path(self) -> Path:
        return self.harness.root / "programs"

    def start(self, *numbers: int, **env: Any) -> RunningCommand:
        agent = self.harness.project / "agent.py"
        agent.write_text(AGENT)
        args = ("exec", *numbers, "--parallel", 3, "--", "python3", agent, self.path, "{item}")
        return self.harness.start(*args, program="agentos", **env)

    def count(self, what: str) -> Counter[int]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        records = [json.loads(line) for line in lines]
        return Counter(int(record["item"]) for record in records if record["what"] == what)

    def is_marked(self, number: int) -> bool:
        name = hashlib.sha256(str(number).encode()).hexdigest()[:32]
        return bool(list(self.harness.home.glob(f"exec/*/*/{name}.done")))


def sweep_programs(
    root: Path, call_numbers: Sequence[int], who: str, environment: Mapping[str, str] | None = None
) -> Sweep:
    """Run one program for each n and kill the process with this role at its n-th durable call."""
    with Sweep(f"{who}s of exec").timed() as sweep, RunHarness.open(root) as harness:
        server, programs = harness.server(), Programs(harness)
        harness.extra_env = dict(environment or {})
        reached, marked = [], {}
        for n in call_numbers:
            shim = shim_of(harness, f"{who}-{n}")
            running = programs.start(n, **shim.environment(who=who, kill_at=n))
            done = running.wait(60)
            if shim.kills == 0:
                break
            sweep.killed(n)
            reached.append(n)
            if who == COORDINATOR:
                sweep.violations += check_killed(harness, running, n)
            else:
                sweep.violations += sound(f"exec with its {who} killed at call {n}", done)
            if programs.is_marked(n):
                marked[n] = programs.count("started")[n]
        sweep.violations += [*_finish(programs, reached), *readable(harness), *leftovers(harness)]
        sweep.violations += [
            *_check_runs(programs, reached, marked),
            *_check_calls(programs, server, reached),
        ]
    return sweep


def _finish(programs: Programs, numbers: Sequence[int]) -> Iterator[str]:
    """Finish everything without kills, then check that another run has nothing to do."""
    yield from sound("exec without kills", programs.start(*numbers).wait(300))
    before = programs.count("started")
    again = programs.start(*numbers).wait(60)
    yield from sound("exec once more", again)
    if programs.count("started") != before or "Nothing is pending" not in again.out:
        yield "a finished program ran again"


def _check_runs(programs: Programs, numbers: Sequence[int], marked: dict[int, int]) -> Iterator[str]:
    started, finished, crowded = (programs.count(what) for what in ("started", "finished", "crowded"))
    for n in numbers:
        if not finished[n] or not programs.is_marked(n):
            yield f"program {n} is lost: it finished {finished[n]} times"
        if started[n] > 2:
            yield f"program {n} ran {started[n]} times after one kill"
        if n in marked and started[n] != marked[n]:
            yield f"program {n} ran again after it was marked done"
        if crowded[n]:
            yield f"program {n} ran twice concurrently"


def _check_calls(programs: Programs, server: ModelServer, numbers: Sequence[int]) -> Iterator[str]:
    started, finished = programs.count("started"), programs.count("finished")
    called = Counter(call["item"] for call in server.calls())
    for n in numbers:
        if not finished[n] <= called[title_of(n)] <= started[n]:
            yield f"program {n}: {called[title_of(n)]} calls for {started[n]} starts"
