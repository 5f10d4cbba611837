"""Runs one client on one scenario and measures it."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TextIO

from bench.keypool import peers
from bench.keypool.job import Job, JobKey, KnownLimit, Report, job_line, read_report
from bench.keypool.physical import best_seconds
from bench.keypool.scenarios import Scenario
from bench.keypool.server import Counts, Server, served

ROOT = Path(__file__).parents[2]
SETTLE = 0.3  # seconds


class LimitKnowledge(StrEnum):
    """Whether the client is given the limits beforehand."""

    KNOWN = "known"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ClientSpec:
    """A client to measure. One that cannot use given limits, or needs them, has only one of the `knowledge_levels`."""

    name: str
    knowledge_levels: tuple[LimitKnowledge, ...]
    is_peer: bool = True


CLIENTS = (
    ClientSpec("ours", (LimitKnowledge.KNOWN, LimitKnowledge.UNKNOWN), is_peer=False),
    ClientSpec("aiolimiter", (LimitKnowledge.KNOWN,)),
    ClientSpec("tenacity", (LimitKnowledge.UNKNOWN,)),
    ClientSpec("litellm", (LimitKnowledge.KNOWN,)),
    ClientSpec("litellm-patient", (LimitKnowledge.KNOWN,)),
    ClientSpec("inspect_ai", (LimitKnowledge.UNKNOWN,)),
)


@dataclass(frozen=True, slots=True)
class BenchmarkCase:
    scenario: Scenario
    spec: ClientSpec
    knowledge: LimitKnowledge
    ledger: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    case: BenchmarkCase
    counts: Counts
    seconds: float
    efficiency: float
    failed: int
    fairness: float
    cpu: float
    peak_mb: float
    error_text: str


class ClientEnded(Exception):
    """A client process ended before it reported."""


def run(case: BenchmarkCase) -> Result:
    with served(case.scenario, case.ledger) as server, tempfile.TemporaryDirectory() as folder:
        jobs = _jobs(case, server, folder)
        try:
            with started(case.spec, jobs, Path(folder) / "errors") as processes:
                reports = start_together(processes, case.scenario.phase)
        except ClientEnded as error:
            reports = [Report((0,), 1.0, 0.0, 0.0, str(error))]
        return _result(case, server.counts(), reports, jobs[0])


def _jobs(case: BenchmarkCase, server: Server, folder: str) -> list[Job]:
    scenario = case.scenario
    whole = Job(
        url=server.url,
        keys=tuple(_key(case, index, secret) for index, secret in enumerate(server.secrets)),
        calls=scenario.calls // scenario.processes,
        callers=scenario.callers // scenario.processes,
        characters=scenario.characters,
        concurrency=scenario.concurrency,
        seconds=0.0,
        names_limits=scenario.names_limits,
        folder=folder if scenario.processes > 1 else "",
        process=0,
    )
    seconds = 3 * best_seconds(scenario, whole, scenario.calls) + 10
    return [replace(whole, process=number, seconds=seconds) for number in range(scenario.processes)]


def _key(case: BenchmarkCase, index: int, secret: str) -> JobKey:
    limits, name = case.scenario.limits[index], f"key-{index + 1}"
    if case.knowledge is LimitKnowledge.UNKNOWN:
        return JobKey(name, secret)
    return JobKey(
        name,
        secret,
        KnownLimit(limits.rate, limits.seconds) if limits.rate else None,
        KnownLimit(limits.tokens, limits.seconds) if limits.tokens else None,
    )


@contextlib.contextmanager
def started(spec: ClientSpec, jobs: list[Job], errors: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Yields when all processes are ready, and ends them on exit."""
    with contextlib.ExitStack() as stack:
        stderr = stack.enter_context(errors.open("w+"))
        processes = [stack.enter_context(_process(spec, stderr)) for _ in jobs]
        try:
            for process, job in zip(processes, jobs, strict=True):
                _send_line(process, job_line(job))
            for process in processes:
                while _line(process) != "ready\n":
                    pass
            yield processes
        except ClientEnded as error:
            last = errors.read_text().strip().rpartition("\n")[2]
            raise ClientEnded(f"{error}: {last}") from error


@contextlib.contextmanager
def _process(spec: ClientSpec, errors: TextIO) -> Iterator[subprocess.Popen[str]]:
    python = str(peers.python_of(spec.name)) if spec.is_peer else sys.executable
    with subprocess.Popen(
        [python, "-m", "bench.keypool.client", spec.name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        cwd=ROOT,
        env=os.environ | {"OPENAI_API_KEY": "given-per-call", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def start_together(processes: list[subprocess.Popen[str]], phase: float | None = None) -> list[Report]:
    """Starts all clients at the same moment, in this phase of the minute, and waits for their reports."""
    wait = SETTLE
    if phase is not None:
        wait += (phase - time.time() - SETTLE) % 60
    start_at = time.monotonic() + wait
    for process in processes:
        _send_line(process, str(start_at))
    return [read_report(_line(process)) for process in processes]


def _send_line(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    if line := process.stdout.readline():
        return line
    raise ClientEnded(f"ended early, with exit code {process.wait()}")


def _result(case: BenchmarkCase, counts: Counts, reports: list[Report], job: Job) -> Result:
    served_by = [count for report in reports for count in report.served]
    seconds, done = max(report.seconds for report in reports), sum(served_by)
    best = best_seconds(case.scenario, job, done) if done else 0.0
    return Result(
        case=case,
        counts=counts,
        seconds=seconds,
        efficiency=best / seconds,
        failed=case.scenario.calls - done,
        fairness=jain(served_by),
        cpu=sum(report.cpu for report in reports),
        peak_mb=sum(report.peak_mb for report in reports),
        error_text=next((report.error_text for report in reports if report.error_text), ""),
    )


def jain(shares: list[int]) -> float:
    """Jain's fairness index: 1 if all shares are equal, 1/n if one caller has everything."""
    squares = len(shares) * sum(share * share for share in shares)
    return sum(shares) ** 2 / squares if squares else 0.0
