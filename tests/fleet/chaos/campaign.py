"""One campaign: two workers finish a backlog while everything breaks; then the promises are checked."""

import re
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.fleet.chaos.cluster import Cluster, Rates, running_cluster
from tests.fleet.chaos.faults import DEATHS, Fault, FaultCounts, FaultInjector, plan
from tests.fleet.chaos.invariants import (
    FleetEvidence,
    check_promises,
    collect_evidence,
    extra_calls,
    keep_evidence,
)
from tests.fleet.harness import PROGRAMS

TICK = 0.25  # seconds
RESERVE = 6  # items kept unfinished until every fault has been injected
WAVE = 4  # items that are added at once
STARTS_AGAIN = 1.0  # seconds
AWAY = 3
"""A command's exit code while a service is away; the same command is run again."""
SUBMIT = ("lld-workflow", "--all", "--fleet")

WHOLE = FaultCounts(hosts=60, postgres=45, outages=1, temporal=11, gateway=17, follower=6)
SHORT_FORM = FaultCounts(hosts=3, postgres=3, outages=0, temporal=1, gateway=1, follower=1)


@dataclass(frozen=True, slots=True)
class FleetCampaignOptions:
    seed: int
    items: int
    counts: FaultCounts
    seconds: float
    """Time limit for everything; a campaign that has not injected everything by then has failed."""
    parallel: int = 3
    rates: Rates = field(default_factory=Rates)


@dataclass(frozen=True, slots=True)
class FleetReport:
    options: FleetCampaignOptions
    seconds: float
    injected: Counter[Fault]
    evidence: FleetEvidence
    findings: dict[str, list[str]]

    @property
    def violations(self) -> list[str]:
        return [f"{promise}: {one}" for promise, against in self.findings.items() for one in against]


@dataclass
class Follower:
    """`lld-workflow --all --fleet`, started again whenever it was killed or a service was away."""

    cluster: Cluster
    exit_codes: Counter[int] = field(default_factory=Counter)
    finished: bool = False
    """Whether it has ended after everything was submitted."""
    process: subprocess.Popen[bytes] | None = None
    _start_at: float = 0.0
    _is_complete: bool = True

    def poll(self) -> None:
        if self.process and self.process.poll() is not None:
            self.exit_codes[self.process.returncode] += 1
            self.finished = self.process.returncode == 0 and self._is_complete
            self.process, self._start_at = None, time.monotonic() + STARTS_AGAIN
        if self.process is None and not self.finished and time.monotonic() >= self._start_at:
            self._is_complete = True
            self.process = self._start(*SUBMIT, "--display", "none")

    def kill(self) -> bool:
        process = self.process
        if process is None or process.poll() is not None:
            return False
        process.kill()
        return process.wait(10) == -signal.SIGKILL

    def submit_more(self) -> None:
        """The follower reads only what it was started for, so it runs once more at the end."""
        self.finished = self._is_complete = False
        self._start(*SUBMIT, "--detach").wait(60)

    def close(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        fleet = self.cluster.fleet
        with (fleet.folder / "follower.log").open("ab") as output:
            return subprocess.Popen(
                [PROGRAMS / command[0], *command[1:]],
                env=fleet.environment("home"),
                cwd=fleet.project,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def run_fleet_campaign(
    folder: Path, options: FleetCampaignOptions, variables: Mapping[str, str] | None = None
) -> FleetReport:
    """Run a whole campaign in a new folder."""
    began = time.monotonic()
    with running_cluster(folder, options.rates, options.parallel, variables or {}) as cluster:
        items = list(range(1, options.items + 1))
        cluster.fleet.issues(*items)
        follower = Follower(cluster)
        injector = FaultInjector(
            cluster,
            plan(options.seed, options.counts),
            follower.kill,
            began + options.seconds * 0.8,
            socket.gethostname(),
        )
        try:
            follower.poll()
            cluster.fleet.wait_until(lambda: len(cluster.calls()) > 3, "the first calls")
            injector.start()
            left = _until_everything_is_done(cluster, follower, injector, items, began + options.seconds)
        finally:
            injector.stop()
            follower.close()
        evidence = collect_evidence(cluster, items, injector.done)
        keep_evidence(evidence, folder / "evidence.json")
        findings = check_promises(evidence)
        findings["faults that were not what they claim"] = list(injector.flaws())
        findings["left"] = [line for host in cluster.hosts for line in host.leftovers]
        findings["commands that failed"] = [*left, *_bad_exits(follower)]
        findings["empty passes"] = list(_empty_passes(evidence, options))
        return FleetReport(options, time.monotonic() - began, injector.counts(), evidence, findings)


def _until_everything_is_done(
    cluster: Cluster, follower: Follower, injector: FaultInjector, items: list[int], deadline: float
) -> list[str]:
    """Keeps the backlog filled until every fault is injected, and then lets it run empty."""
    while injector.is_running or not follower.finished:
        if time.monotonic() > deadline:
            return ["the backlog was not finished at the time limit"]
        if injector.is_running and len(items) - len(cluster.fleet.documents()) < RESERVE:
            more = range(len(items) + 1, len(items) + WAVE + 1)
            cluster.fleet.issues(*more)
            items += more
            follower.submit_more()
        follower.poll()
        time.sleep(TICK)
    return []


def _bad_exits(follower: Follower) -> Iterator[str]:
    for code, count in follower.exit_codes.items():
        if code not in (0, AWAY, -signal.SIGKILL):
            yield f"the follower exited with {code} ({count} times)"


def _empty_passes(evidence: FleetEvidence, options: FleetCampaignOptions) -> Iterator[str]:
    """A campaign that hit nothing proves nothing."""
    faults = {each.fault for each in evidence.injected}
    attempts = sum(turns.repeated_attempts for turns in evidence.turns.values())
    if faults.intersection(DEATHS) and not attempts:
        yield "no item went on elsewhere after a death"
    if Fault.DRAIN in faults and all(each.turns < 2 for each in evidence.turns.values()):
        yield "no item was handed over by a drained worker"
    waits = len(re.findall(r"is unreachable|Waiting for", evidence.said))
    if options.counts.postgres and not waits:
        yield "no item waited for Postgres"


def fleet_figures(report: FleetReport) -> Iterator[str]:
    """The lines of the printed report."""
    evidence, options = report.evidence, report.options
    yield f"seed {options.seed}: {len(evidence.items)} items, two workers with {options.parallel} at a time each"
    yield f"injected {report.injected.total()} of {options.counts.total}:"
    yield from (f"  {fault}: {report.injected[fault]}" for fault in Fault if report.injected[fault])
    turns = evidence.turns.values()
    yield (
        f"turns {sum(each.turns for each in turns)}, attempts repeated {sum(each.repeated_attempts for each in turns)}"
    )
    yield (
        f"calls {len(evidence.calls)}, accepted {len(evidence.accepted())}, "
        f"repeated after a death {extra_calls(evidence)}"
    )
    for promise, against in report.findings.items():
        yield f"{promise}: {len(against)}"
        yield from (f"  - {one}" for one in against[:20])
    yield f"{'FAILED' if report.violations else 'passed'} after {report.seconds:.0f} s"
