"""The offline model server with a scenario's limits, and what it counted."""

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agentos.offline.rate_limits import OfflineLimits
from bench.keypool.scenarios import Scenario


@dataclass(frozen=True, slots=True)
class Counts:
    """Calls as the server counted them; all calls on dead keys are wasted."""

    admitted: int
    refused: int
    wasted: int


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    secrets: tuple[str, ...]
    dead: Mapping[int, str]

    def counts(self) -> Counts:
        with urllib.request.urlopen(f"{self.url}/_offline/ledger?last=0") as answer:
            statuses: dict[str, dict[str, int]] = json.load(answer)["statuses"]
        dead = {f"key-{index + 1}" for index in self.dead}
        usable = [counted for key, counted in statuses.items() if key not in dead]
        return Counts(
            admitted=sum(counted.get("200", 0) for counted in usable),
            refused=sum(count for counted in usable for status, count in counted.items() if status != "200"),
            wasted=sum(sum(counted.values()) for key, counted in statuses.items() if key in dead),
        )


@contextlib.contextmanager
def served(scenario: Scenario, call_log: str = "") -> Iterator[Server]:
    process = subprocess.Popen(
        [sys.executable, "-m", "agentos", "offline-server", "--die-with-parent", *_flags(scenario, call_log)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout and process.stdin
    try:
        ready = json.loads(process.stdout.readline())
        yield Server(ready["url"], tuple(ready["keys"]), scenario.dead)
    finally:
        process.stdin.close()
        process.wait(5)
        process.stdout.close()


def _flags(scenario: Scenario, call_log: str) -> list[str]:
    flags = ["--keys", str(len(scenario.limits)), "--latency", f"{scenario.latency},{scenario.latency}"]
    for index, limits in enumerate(scenario.limits):
        flags += ["--limit", f"key-{index + 1}:{_limit_text(limits)}"]
    if any(limits.counts_refused for limits in scenario.limits):
        flags.append("--count-refused")
    for index, kind in scenario.dead.items():
        fault = {"kind": kind, "key": f"key-{index + 1}", "times": None}
        flags += ["--fault", json.dumps(fault)]
    return [*flags, "--ledger", call_log] if call_log else flags


def _limit_text(limits: OfflineLimits) -> str:
    fields = {
        "rpm": limits.rate,
        "tpm": limits.tokens,
        "itpm": limits.input_tokens,
        "burst": limits.burst,
        "seconds": limits.seconds,
        "window": limits.window,
    }
    return ",".join(f"{name}={value}" for name, value in fields.items() if value is not None)
