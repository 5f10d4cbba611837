"""The short steps of a campaign; each takes seconds and returns the violations it found."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.chaos.contention import contend
from tests.chaos.decisions import Act
from tests.chaos.powercut import cut_everywhere
from tests.chaos.processes import Role, orphans_of, process_tree
from tests.chaos.sweep import calls_of_a_worker, sweep_filings
from tests.chaos.sweep_gated_runs import sweep_gated_runs
from tests.chaos.sweep_gateways import BESIDE, sweep_gateways
from tests.chaos.sweep_programs import WORKER, sweep_programs
from tests.chaos.sweep_reviews import sweep_reviews
from tests.faults.shim import Shim, compiled
from tests.scenarios.harness import RunHarness, wait_until

Environment = dict[str, str]
Step = Callable[[Path, Environment], list[str]]
FILING = range(100, 10, -2)  # durable calls before a worker's last, around the filing
# Numbers of the durable calls at which each other step kills.
MARKING = range(5, 11)
DECIDING = range(8, 16, 2)
GATED = (30, 60)
NOTING = range(4, 12)
FREE_WITHIN = 10.0  # seconds
SEED = 11


def locks(root: Path, environment: Environment) -> list[str]:
    """Eight processes contend for two item locks; no two may hold the same lock."""
    return contend(root, 5.0, SEED, environment)


def power(root: Path, environment: Environment) -> list[str]:
    """The power is cut at many points of a run."""
    with RunHarness.open(root) as harness:
        harness.issue(42)
        harness.server()
        harness.extra_env = environment
        library = compiled()
        assert library, "needs a C compiler (gcc or cc)"
        found = cut_everywhere(harness, Shim(library, harness), every=3)
    if not found.promises:
        found.violations.append("vacuous: nothing was acknowledged")
    return found.violations


def filing(root: Path, environment: Environment) -> list[str]:
    """Workers are killed at the durable calls around the filing of an issue."""
    calls = calls_of_a_worker(root / "counted", "issue-workflow")
    return sweep_filings(root / "killed", [calls - before for before in FILING], environment).violations


def programs(root: Path, environment: Environment) -> list[str]:
    """Workers are killed at the durable calls around the done marker of a program."""
    return sweep_programs(root, MARKING, WORKER, environment).violations


def reviews(root: Path, environment: Environment) -> list[str]:
    """`agentos review` is killed at the durable calls around the decision."""
    return sweep_reviews(root, DECIDING, Act.SEND_BACK, environment).violations


def gates(root: Path, environment: Environment) -> list[str]:
    """Runs that park items and resume decided ones are killed."""
    return sweep_gated_runs(root, GATED, environment).violations


def gateways(root: Path, environment: Environment) -> list[str]:
    """A gateway is killed at each of its notes while another gateway waits for its key."""
    return sweep_gateways(root, NOTING, BESIDE, environment).violations


def keys(root: Path, environment: Environment) -> list[str]:
    """Three runs share one key with slow calls; the key must carry one call at a time."""
    with RunHarness.open(root) as harness:
        harness.issues(*range(40, 44))
        server = harness.server("--latency", "0.8,0.8", keys=("canary-only-one-41aa",))
        harness.extra_env = environment
        running = [harness.start("--all", "--parallel", 2) for _ in range(3)]
        codes = [command.wait(90).code for command in running]
        peak = max(server.ledger()["max_concurrent"].values())
        found = [f"{peak} concurrent calls with one key"] if peak > 1 else []
        return found + [f"a run ended with {code}" for code in codes if code != 0]


def death(root: Path, environment: Environment) -> list[str]:
    """A worker is killed while it holds the only key; a waiting run must get the key soon."""
    with RunHarness.open(root) as harness:
        harness.issues(42, 43)
        fault = {"kind": "hang", "matching": "Thing 42"}
        server = harness.server(fault=fault, keys=("canary-only-one-41aa",))
        harness.extra_env = environment
        first = harness.start(42)
        wait_until(lambda: bool(server.calls(42)), 60)
        worker = harness.worker("LLD-42")
        second = harness.start(43)
        second.wait_for("N1_design", 60)
        assert not server.calls(43), "the first run does not hold the key"
        os.kill(worker, signal.SIGKILL)
        try:
            wait_until(lambda: bool(server.calls(43)), FREE_WITHIN)
        except AssertionError:
            return [f"another run did not get the key of a killed worker within {FREE_WITHIN:g} s"]
        return [
            f"a run ended with {code}" for command in (first, second) if (code := command.wait(60).code) != 0
        ]


def orphans(root: Path, environment: Environment) -> list[str]:
    """A coordinator is killed while its workers are suspended; none may be alive after 2 s."""
    with RunHarness.open(root) as harness:
        harness.issues(42, 43)
        server = harness.server("--latency", "60,60")
        harness.extra_env = environment
        running = harness.start("--all", "--parallel", 2)
        wait_until(lambda: len(server.calls()) == 2, 60)
        members = process_tree(running.pid).members
        frozen = [member.process for member in members if member.role is not Role.COORDINATOR]
        for process in frozen:
            os.kill(process.pid, signal.SIGSTOP)
        running.signal(signal.SIGKILL)
        running.wait()
        time.sleep(2.0)
        survivors = orphans_of(running.pid)
        for process in frozen:
            if process.alive:
                os.kill(process.pid, signal.SIGKILL)
        return [f"{len(survivors)} processes outlived their coordinator"] if survivors else []


SHIMMED = (power, filing, programs, reviews, gates, gateways)
"""Steps that need a C compiler."""
STEPS: dict[str, Step] = {step.__name__: step for step in (locks, *SHIMMED, keys, death, orphans)}
