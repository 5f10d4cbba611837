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
from bench.keypool.job import Job, JobKey, Report, Told, job_line, read_report
from bench.keypool.physical import best_seconds
from bench.keypool.scenarios import Scenario
from bench.keypool.server import Counts, Server, served

ROOT = Path(__file__).parents[2]
SETTLE = 0.3


class Telling(StrEnum):
    """Whether the client is told the limits beforehand."""

    KNOWN = "known"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Entrant:
    """`tellings`: a client that can make nothing of limits, or nothing without, runs once."""

    name: str
    tellings: tuple[Telling, ...]
    is_peer: bool = True


ENTRANTS = (
    Entrant("ours", (Telling.KNOWN, Telling.UNKNOWN), is_peer=False),
    Entrant("aiolimiter", (Telling.KNOWN,)),
    Entrant("tenacity", (Telling.UNKNOWN,)),
    Entrant("litellm", (Telling.KNOWN,)),
    Entrant("litellm-patient", (Telling.KNOWN,)),
    Entrant("inspect_ai", (Telling.UNKNOWN,)),
)


@dataclass(frozen=True, slots=True)
class Race:
    scenario: Scenario
    entrant: Entrant
    telling: Telling
    ledger: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    race: Race
    counts: Counts
    seconds: float
    efficiency: float
    failed: int
    fairness: float
    cpu: float
    peak_mb: float
    trouble: str


class ClientEnded(Exception):
    """A client process has ended before its report."""


def run(race: Race) -> Result:
    with served(race.scenario, race.ledger) as server, tempfile.TemporaryDirectory() as folder:
        jobs = _jobs(race, server, folder)
        try:
            with _started(race.entrant, jobs, Path(folder) / "errors") as processes:
                reports = [read_report(_line(process)) for process in _gone(processes, race.scenario)]
        except ClientEnded as error:
            reports = [Report((0,), 1.0, 0.0, 0.0, str(error))]
        return _result(race, server.counts(), reports, jobs[0])


def _jobs(race: Race, server: Server, folder: str) -> list[Job]:
    scenario = race.scenario
    whole = Job(
        url=server.url,
        keys=tuple(_key(race, place, secret) for place, secret in enumerate(server.secrets)),
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


def _key(race: Race, place: int, secret: str) -> JobKey:
    limits, name = race.scenario.limits[place], f"key-{place + 1}"
    if race.telling is Telling.UNKNOWN:
        return JobKey(name, secret)
    return JobKey(
        name,
        secret,
        Told(limits.rate, limits.seconds) if limits.rate else None,
        Told(limits.tokens, limits.seconds) if limits.tokens else None,
    )


@contextlib.contextmanager
def _started(entrant: Entrant, jobs: list[Job], errors: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """All are ready when it yields; none is left when it ends."""
    with contextlib.ExitStack() as stack:
        said = stack.enter_context(errors.open("w+"))
        processes = [stack.enter_context(_process(entrant, said)) for _ in jobs]
        try:
            for process, job in zip(processes, jobs, strict=True):
                _tell(process, job_line(job))
            for process in processes:
                while _line(process) != "ready\n":
                    pass
            yield processes
        except ClientEnded as error:
            last = errors.read_text().strip().rpartition("\n")[2]
            raise ClientEnded(f"{error}: {last}") from error


@contextlib.contextmanager
def _process(entrant: Entrant, errors: TextIO) -> Iterator[subprocess.Popen[str]]:
    python = str(peers.python_of(entrant.name)) if entrant.is_peer else sys.executable
    with subprocess.Popen(
        [python, "-m", "bench.keypool.client", entrant.name],
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


def _gone(processes: list[subprocess.Popen[str]], scenario: Scenario) -> list[subprocess.Popen[str]]:
    """Sends them off together, at the scenario's phase of the minute."""
    wait = SETTLE
    if scenario.phase is not None:
        wait += (scenario.phase - time.time() - SETTLE) % 60
    go_at = time.monotonic() + wait
    for process in processes:
        _tell(process, str(go_at))
    return processes


def _tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    if line := process.stdout.readline():
        return line
    raise ClientEnded(f"ended early, with exit code {process.wait()}")


def _result(race: Race, counts: Counts, reports: list[Report], job: Job) -> Result:
    served_by = [count for report in reports for count in report.served]
    seconds, done = max(report.seconds for report in reports), sum(served_by)
    best = best_seconds(race.scenario, job, done) if done else 0.0
    return Result(
        race=race,
        counts=counts,
        seconds=seconds,
        efficiency=best / seconds,
        failed=race.scenario.calls - done,
        fairness=jain(served_by),
        cpu=sum(report.cpu for report in reports),
        peak_mb=sum(report.peak_mb for report in reports),
        trouble=next((report.trouble for report in reports if report.trouble), ""),
    )


def jain(shares: list[int]) -> float:
    """1 if all have the same, 1/n if one has it all."""
    squares = len(shares) * sum(share * share for share in shares)
    return sum(shares) ** 2 / squares if squares else 0.0
