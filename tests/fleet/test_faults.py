"""Faults while two workers finish a backlog: nothing is lost, nothing is done twice, nothing fails."""

import os
import random
import signal
import time
from pathlib import Path

import psycopg
import pytest

from tests.fleet.harness import Fleet, processes_below
from tests.fleet.servers import running_servers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ITEMS = 24
CALLS_PER_ITEM = 6
FREEZE = 2.0  # seconds


def test_a_backlog_survives_kills_freezes_drains_and_restarts(tmp_path: Path) -> None:
    chance, deaths = random.Random(16), 0
    with (
        running_servers() as (postgres, temporal),
        Fleet(tmp_path, postgres, temporal, postgres.admin_url) as fleet,
    ):
        assert fleet.run("agentos", "fleet", "init").returncode == 0
        fleet.issues(*range(1, ITEMS + 1))
        workers = [fleet.worker(parallel=2), fleet.worker(parallel=2)]
        follower = fleet.start("lld-workflow", "--all", "--fleet", "--display", "none")
        fleet.wait_until(lambda: fleet.calls() > 4, "the first calls")
        faults = ["kill", "freeze", "drain", "postgres", "gateway", "temporal", "postgres", "kill"]
        for fault in faults:
            number = chance.randrange(2)
            worker = workers[number]
            if fault == "kill":
                fleet.kill(worker)
                workers[number] = fleet.worker(parallel=2)
                deaths += 2  # two items at a time, and each may have had a call under way
            elif fault == "freeze":
                worker.send_signal(signal.SIGSTOP)
                time.sleep(FREEZE)
                worker.send_signal(signal.SIGCONT)
            elif fault == "drain":
                worker.send_signal(signal.SIGTERM)
                assert worker.wait(12) == 143
                workers[number] = fleet.worker(parallel=2)
            elif fault == "postgres":
                postgres.stop(signal.SIGINT)
                postgres.start()
            elif fault == "gateway":
                fleet.gateway.stop(signal.SIGKILL)
                fleet.gateway.start(fleet.environment("gateway"))
                deaths += 4
            else:
                temporal.stop(signal.SIGKILL)
                temporal.start()
        output, _ = follower.communicate(timeout=200)
        assert follower.returncode == 0, output
        assert fleet.documents() == [f"LLD-{n:03}.md" for n in range(1, ITEMS + 1)]
        lineages = [path.name for path in (fleet.project / "docs/lineage/done").iterdir()]
        assert sorted(lineages) == sorted(f"{n}-lld" for n in range(1, ITEMS + 1))
        assert ITEMS * CALLS_PER_ITEM <= fleet.calls() <= ITEMS * CALLS_PER_ITEM + deaths


def test_a_machine_that_thaws_after_its_item_was_taken_over_writes_nothing(fleet: Fleet) -> None:
    fleet.issues(1)
    first = fleet.worker()
    follower = fleet.start("lld-workflow", "--all", "--fleet")
    fleet.wait_until(lambda: "N1_design" in fleet.log(1).read_text(), "the first draft")
    frozen = [first.pid, *processes_below(first.pid)]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    fleet.worker()
    output, _ = follower.communicate(timeout=90)
    assert follower.returncode == 0, output
    before = everything(fleet.database)
    for pid in reversed(frozen):
        os.kill(pid, signal.SIGCONT)
    # Whichever it notices first: that Temporal has cancelled the turn, or that its claim is outranked.
    ends = ("has taken it over", "Interrupted at")
    fleet.wait_until(lambda: any(end in fleet.log(1).read_text() for end in ends), "the end of its item")
    assert first.poll() is None
    assert "Traceback" not in fleet.log(1).read_text()
    assert everything(fleet.database) == before


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
