"""SIGKILL at the n-th durable call of an `agentos exec`: its coordinator, its worker, its gateway."""

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
def tell(what):
    line = json.dumps({"what": what, "item": item, "pid": os.getpid()}) + "\\n"
    file = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, line.encode())
    os.close(file)
alone = os.open(f"{ledger}-{item}", os.O_RDWR | os.O_CREAT, 0o600)
try:
    fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    tell("crowded")
tell("began")
text = f"<issue>\\n# Thing {item} can be used\\n</issue>\\n"
body = json.dumps({"contents": [{"parts": [{"text": text}]}]}).encode()
url = os.environ["GEMINI_BASE_URL"] + "/v1beta/models/gemini-2.5-pro:generateContent"
headers = {"x-goog-api-key": os.environ["GEMINI_API_KEY"], "content-type": "application/json"}
try:
    urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=20).read()
except OSError as error:
    sys.exit(f"no answer: {error}")
tell("ended")
"""
COORDINATOR, WORKER, GATEWAY = "coordinator", "worker", "gateway"


@dataclass(frozen=True, slots=True)
class Programs:
    """A stage with a program that keeps a ledger of its own, beyond the reach of agentos."""

    harness: RunHarness

    @property
    def path(self) -> Path:
        return self.harness.root / "programs"

    def start(self, *numbers: int, **env: Any) -> RunningCommand:
        agent = self.harness.project / "agent.py"
        agent.write_text(AGENT)
        words = ("exec", *numbers, "--parallel", 3, "--", "python3", agent, self.path, "{item}")
        return self.harness.start(*words, program="agentos", **env)

    def told(self, what: str) -> Counter[int]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        records = [json.loads(line) for line in lines]
        return Counter(int(record["item"]) for record in records if record["what"] == what)

    def is_marked(self, number: int) -> bool:
        name = hashlib.sha256(str(number).encode()).hexdigest()[:32]
        return bool(list(self.harness.home.glob(f"exec/*/*/{name}.done")))


def sweep_programs(
    root: Path, places: Sequence[int], who: str, environment: Mapping[str, str] | None = None
) -> Sweep:
    """A run of one program for each n; its process of this role is killed at its n-th durable call."""
    with Sweep(f"{who}s of exec").timed() as sweep, RunHarness.open(root) as harness:
        server, programs = harness.server(), Programs(harness)
        harness.extra_env = dict(environment or {})
        reached, marked = [], {}
        for n in places:
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
                sweep.violations += sound(f"exec, its {who} killed at call {n},", done, *_codes(who))
            if programs.is_marked(n):
                marked[n] = programs.told("began")[n]
        sweep.violations += [*_finish(programs, reached), *readable(harness), *leftovers(harness)]
        sweep.violations += [*_runs(programs, reached, marked), *_calls(programs, server, reached)]
    return sweep


def _codes(who: str) -> tuple[int, ...]:
    """A death costs a retry; a gateway that dies before it serves keeps the run from beginning."""
    return (0,) if who == WORKER else (0, 3)


def _finish(programs: Programs, numbers: Sequence[int]) -> Iterator[str]:
    """Left alone, everything is done; then nothing is."""
    yield from sound("exec, left alone,", programs.start(*numbers).wait(300))
    before = programs.told("began")
    again = programs.start(*numbers).wait(60)
    yield from sound("exec, once more,", again)
    if programs.told("began") != before or "Nothing is pending" not in again.out:
        yield "what was done is done again"


def _runs(programs: Programs, numbers: Sequence[int], marked: dict[int, int]) -> Iterator[str]:
    began, ended, crowded = (programs.told(what) for what in ("began", "ended", "crowded"))
    for n in numbers:
        if not ended[n] or not programs.is_marked(n):
            yield f"program {n} is lost: {ended[n]} ends"
        if began[n] > 2:
            yield f"program {n} ran {began[n]} times, with one death"
        if n in marked and began[n] != marked[n]:
            yield f"program {n} ran again after it was marked as done"
        if crowded[n]:
            yield f"program {n} ran twice at once"


def _calls(programs: Programs, server: ModelServer, numbers: Sequence[int]) -> Iterator[str]:
    began, ended = programs.told("began"), programs.told("ended")
    asked = Counter(call["item"] for call in server.calls())
    for n in numbers:
        if not ended[n] <= asked[title_of(n)] <= began[n]:
            yield f"program {n}: {asked[title_of(n)]} calls for {began[n]} beginnings"
