"""Short parts of the campaign, each for one kind of planted bug; each returns the violations it found."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psycopg

from tests.fleet.chaos.campaign import FleetCampaignOptions, run_fleet_campaign
from tests.fleet.chaos.cluster import Rates
from tests.fleet.chaos.faults import Fault, FaultCounts
from tests.fleet.harness import Fleet, processes_below
from tests.fleet.servers import running_servers

Environment = dict[str, str]
FleetStep = Callable[[Path, Environment], list[str]]
DRAINS = FaultCounts(2, 0, 0, 0, 0, 0, host_faults=(Fault.DRAIN,))
RESTARTS = FaultCounts(0, 3, 0, 0, 0, 0)
FAST = Rates(rpm=30)
QUIET = 4.0  # seconds without a write, after which a machine that has thawed has nothing more to say


def drains(folder: Path, environment: Environment) -> list[str]:
    """Workers are stopped with SIGTERM, one after the other, and nothing else happens."""
    return _campaign(folder, environment, DRAINS)


def outages(folder: Path, environment: Environment) -> list[str]:
    """Postgres is restarted, and nothing else happens."""
    return _campaign(folder, environment, RESTARTS)


def _campaign(folder: Path, environment: Environment, counts: FaultCounts) -> list[str]:
    options = FleetCampaignOptions(seed=2, items=6, counts=counts, seconds=150.0, rates=FAST)
    return run_fleet_campaign(folder, options, environment).violations


def thaw(folder: Path, environment: Environment) -> list[str]:
    """A machine is frozen, its item is finished elsewhere, and it thaws: it may write nothing any more."""
    with (
        running_servers() as (postgres, temporal),
        Fleet(folder, postgres, temporal, postgres.admin_url, variables=environment) as fleet,
    ):
        assert fleet.run("agentos", "fleet", "init").returncode == 0
        fleet.issues(1)
        first = fleet.worker()
        follower = fleet.start("lld-workflow", "--all", "--fleet")
        fleet.wait_until(lambda: "N1_design" in fleet.log(1).read_text(), "the first draft")
        frozen = [first.pid, *processes_below(first.pid)]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        fleet.worker()
        follower.communicate(timeout=90)
        before = everything(fleet.database)
        for pid in reversed(frozen):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        _until_quiet(fleet)
        after = everything(fleet.database)
        found = [f"written by an outranked worker: {row}" for row in after if row not in before]
        return found + [f"removed by an outranked worker: {row}" for row in before if row not in after]


def _until_quiet(fleet: Fleet) -> None:
    ends = ("has taken it over", "Interrupted at", "Approved after")
    deadline = time.monotonic() + 30
    while not any(end in fleet.log(1).read_text() for end in ends) and time.monotonic() < deadline:
        time.sleep(0.1)
    last, since = everything(fleet.database), time.monotonic()
    while time.monotonic() < min(since + QUIET, deadline + QUIET):
        if (found := everything(fleet.database)) != last:
            last, since = found, time.monotonic()
        time.sleep(0.2)


def everything(database: str) -> list[tuple[object, ...]]:
    """What a worker may write, in a comparable form."""
    with psycopg.connect(database) as reader:
        rows = reader.execute(
            "SELECT 'event', id::text, event::text FROM agentos_events UNION ALL "
            "SELECT 'note', name, text FROM agentos_notes UNION ALL "
            "SELECT 'document', path, encode(sha256(content), 'hex') FROM agentos_documents UNION ALL "
            "SELECT 'checkpoint', thread_id, checkpoint_id FROM checkpoints UNION ALL "
            "SELECT 'item', claim::text, outcome::text FROM agentos_items ORDER BY 1, 2"
        )
        return rows.fetchall()


def interleaved(folder: Path, environment: Environment) -> list[str]:
    """Events become visible out of the order of their numbers, while a follower reads."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fleet.chaos.interleaved"],
        env={**os.environ, **environment},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.splitlines()


FLEET_STEPS: dict[str, FleetStep] = {
    "drains": drains,
    "outages": outages,
    "thaw": thaw,
    "interleaved": interleaved,
}
