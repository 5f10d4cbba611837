"""Hundreds of items: stopped halfway, resumed, and the last ones as cheap as the first."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench.scale import make_project

from agentos.storage.home import Home
from agentos.storage.runs import RetentionPolicy, prune, run_folders

ITEMS, HALF = 300, 150
ROOT = Path(__file__).parents[2]


def probe(folder: Path, *numbers: int) -> Any:
    command = [sys.executable, "-m", "tests.scenarios.scale_probe", str(folder), *map(str, numbers)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    return json.loads(done.stdout)


def dry_run(folder: Path) -> list[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "AGENTOS_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "agentos", "run", "lld", "--all", "--offline", "--dry-run"]
    done = subprocess.run(
        [*command, "--repo", str(folder / "project")],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stdout.splitlines()


def events_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def backlog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with this many issues, half of them done by a run that was then stopped."""
    folder = tmp_path_factory.mktemp("scale")
    make_project(folder, ITEMS)
    assert probe(folder, HALF)["code"] == 143
    return folder


@pytest.mark.slow
def test_hundreds_of_items_are_stopped_and_resumed_without_repeating_any(backlog: Path) -> None:
    documents = backlog / "project" / "docs" / "lld" / "active"
    done = len(list(documents.iterdir()))
    assert HALF <= done < ITEMS
    stopped = run_folders(Home(backlog / "home").runs)[0]
    # Items that never started have no log of their own, but are still in the summary.
    unbegun = [
        event for event in events_of(stopped) if event["type"] == "item_ended" and not event["attempts"]
    ]
    assert len(unbegun) >= ITEMS - done - 10
    assert not (stopped / f"{unbegun[0]['item']}.log").exists()
    assert dry_run(backlog)[0] == f"[COORDINATOR] Dry run mode - would process {ITEMS - done} items:"

    resumed = probe(backlog)

    assert resumed["code"] == 0
    assert len(list(documents.iterdir())) == ITEMS
    newest = run_folders(Home(backlog / "home").runs)[0]
    ended = [event["item"] for event in events_of(newest) if event["type"] == "item_ended"]
    assert len(ended) == len(set(ended)) == ITEMS - done
    assert prune(Home(backlog / "home").runs, RetentionPolicy(runs=1), 0.0) and run_folders(
        newest.parent
    ) == [newest]


@pytest.mark.slow
def test_the_last_items_cost_no_more_than_the_first(tmp_path: Path) -> None:
    make_project(tmp_path, ITEMS)
    found = probe(tmp_path)
    laps = found["laps"]
    assert found["code"] == 0 and len(laps) == ITEMS // 50
    first, last = (
        {name: after[name] - before[name] for name in after} for before, after in (laps[:2], laps[-2:])
    )
    assert first["opened"] > 50 and last["opened"] <= 1.1 * first["opened"]
    # No listing of a folder that grows with the number of items.
    assert laps[-1]["listed"] == laps[0]["listed"]
    assert (laps[-1]["bytes"] - laps[0]["bytes"]) / (ITEMS - 50) < 4096
