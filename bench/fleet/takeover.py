"""How long the items of a machine that dies, or is told to stop, are without a machine."""

import json
import signal
import time

import psycopg
from tests.fleet.harness import Fleet

from agentos.fleet.item_workflow import HEARTBEAT_TIMEOUT
from bench.fleet.figures import Figure, bench_fleet

ITEMS = 3
CALLS_PER_ITEM = 6
DETECTION = HEARTBEAT_TIMEOUT.total_seconds() + 2
POLL_INTERVAL = 0.02  # seconds


def measure() -> list[Figure]:
    with bench_fleet("1,1") as fleet:
        stopped, repeated = _hand_over(fleet, signal.SIGTERM, first_issue=1)
        died, _ = _hand_over(fleet, signal.SIGKILL, first_issue=1 + ITEMS)
    return [
        Figure("SIGTERM: the last item is at work elsewhere after", stopped, "s", 3),
        Figure("SIGTERM: calls repeated", repeated, "", 0),
        Figure("dead machine: the last item is at work elsewhere after", died, "s", DETECTION),
    ]


def _hand_over(fleet: Fleet, number: signal.Signals, first_issue: int) -> tuple[float, int]:
    """Seconds until every item of the first worker has been claimed elsewhere, and the calls made twice."""
    names = [f"{fleet.name}/LLD-{issue}" for issue in range(first_issue, first_issue + ITEMS)]
    fleet.issues(*range(first_issue, first_issue + ITEMS))
    before = _calls(fleet)
    first = fleet.worker(parallel=ITEMS)
    follower = fleet.start("lld-workflow", "--all", "--fleet", "--display", "none")
    with psycopg.connect(fleet.database, autocommit=True) as reader:

        def holders() -> set[str]:
            rows = reader.execute(
                "SELECT machine FROM agentos_items WHERE thread_id = ANY(%s) AND state = 'running'", (names,)
            ).fetchall()
            return {str(row[0]) for row in rows} if len(rows) == ITEMS else set()

        fleet.wait_until(lambda: bool(holders()), "the items on the first worker")
        mine = holders()
        second = fleet.worker(parallel=ITEMS)
        fleet.wait_until(lambda: _calls(fleet) >= before + 2 * ITEMS, "calls")
        began = time.monotonic()
        first.send_signal(number)
        while not (found := holders()) or found & mine:
            assert time.monotonic() < began + 2 * DETECTION, "nobody has taken the items over"
            time.sleep(POLL_INTERVAL)
        seconds = time.monotonic() - began
    output, _ = follower.communicate(timeout=120)
    assert follower.returncode == 0, output
    first.wait(20)
    fleet.kill(second)
    return seconds, _calls(fleet) - before - ITEMS * CALLS_PER_ITEM


def _calls(fleet: Fleet) -> int:
    """Calls that the model server has seen the end of, whatever that was."""
    lines = (fleet.folder / "calls.jsonl").read_text().splitlines()
    return sum(json.loads(line)["status"] != 429 for line in lines)
