"""What an item costs on a fleet beside the local engine, and how long a thousand items take to submit."""

import statistics
import subprocess
import time
from itertools import pairwise

import psycopg
from tests.fleet.harness import ISSUE, PROGRAMS, Fleet

from bench.fleet.figures import Figure, bench_fleet

ITEMS = 15
ROUNDS = 2
MANY = 1000
LATENCY = 0.2  # seconds


def measure() -> list[Figure]:
    with bench_fleet(f"{LATENCY},{LATENCY}") as fleet:
        fleet.worker(parallel=1)
        local: list[float] = []
        fleets: list[float] = []
        for number in range(ROUNDS):
            local += _locally(fleet, number)
            fleets += _on_the_fleet(fleet, 1 + number * ITEMS)
        fleet.kill(fleet.workers[-1])
        submitted = _submit_many(fleet)
    each_local, each_fleet = statistics.median(local), statistics.median(fleets)
    return [
        Figure("an item of six calls of 0.2 s, locally, one after the other", each_local, "s"),
        Figure("the same on a fleet of one worker", each_fleet, "s"),
        Figure("fleet / local", each_fleet / each_local, "times as long"),
        Figure("an item costs more on the fleet", each_fleet - each_local, "s", 0.3),
        Figure(f"{MANY} items submitted in", submitted, "s", 20),
    ]


def _locally(fleet: Fleet, number: int) -> list[float]:
    """Seconds from the end of each item to the end of the next, in a project of its own."""
    project = fleet.folder / f"local-{number}"
    (project / "issues").mkdir(parents=True)
    for issue in range(1, ITEMS + 1):
        (project / f"issues/{issue}-thing.md").write_text(ISSUE.format(n=issue))
    done = subprocess.run(
        [PROGRAMS / "lld-workflow", "--all", "--parallel", "1", "--display", "none", "--repo", project],
        env=fleet.environment("local"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ended = sorted(path.stat().st_mtime for path in (project / "docs/lld/active").glob("LLD-*.md"))
    assert len(ended) == ITEMS
    return [later - earlier for earlier, later in pairwise(ended)]


def _on_the_fleet(fleet: Fleet, first: int) -> list[float]:
    numbers = range(first, first + ITEMS)
    fleet.issues(*numbers)
    done = fleet.run("lld-workflow", "--all", "--fleet", "--display", "none", timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    with psycopg.connect(fleet.database) as reader:
        rows = reader.execute(
            "SELECT extract(epoch FROM done_at)::float8 FROM agentos_items WHERE item = ANY(%s) ORDER BY 1",
            ([f"LLD-{number}" for number in numbers],),
        ).fetchall()
    ended = [float(row[0]) for row in rows]
    return [later - earlier for earlier, later in pairwise(ended)]


def _submit_many(fleet: Fleet) -> float:
    first = 1 + ROUNDS * ITEMS
    fleet.issues(*range(first, first + MANY))
    began = time.monotonic()
    done = fleet.run("lld-workflow", "--all", "--fleet", "--detach", timeout=300)
    seconds = time.monotonic() - began
    assert done.returncode == 0 and f"Submitted {MANY} items" in done.stdout, done.stdout + done.stderr
    return seconds
