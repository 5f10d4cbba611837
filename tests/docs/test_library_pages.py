"""The code on the library pages and in examples/ runs, and the pages name everything public."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import agentos.parallel
import agentos.workflows
from agentos.workflows import GraphItem, GraphOptions
from agentos.workflows.base import WorkflowMembers
from tests.audits.tree import ROOT

PAGE = ROOT / "docs/reference/parallel.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LAST_LINES = {
    "async_tasks": r"delta: DELTA \(attempt \d+\)",
    "shared_keys": r"calls by key: \{'key-1': \d+, 'key-2': \d+, 'key-3': \d+\}",
    "side_by_side": r"4 of 4, \d+ words",
    "task_locks": r"10 tasks done, by worker-\d(, worker-2)?",
}


def run(folder: Path, *arguments: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_code_block_of_the_reference_runs(number: int, tmp_path: Path) -> None:
    run(tmp_path, "-c", BLOCKS[number])


def test_the_reference_names_every_public_name() -> None:
    text = PAGE.read_text("utf-8")
    own = {"Credential", "ReservedCredential", "PoolStats", "ParallelResult"}
    assert [name for name in agentos.parallel.__all__ if name not in text and name not in own] == []
    assert len(BLOCKS) >= 5


def test_the_reference_names_every_public_name_of_a_workflow() -> None:
    text = (ROOT / "docs/reference/workflows.md").read_text("utf-8")
    members = [name for name in dir(WorkflowMembers) if not name.startswith("_")]
    fields = [field.name for kind in (GraphItem, GraphOptions) for field in dataclasses.fields(kind)]
    assert [name for name in (*members, *fields) if f"`{name}" not in text] == []
    assert [name for name in agentos.workflows.__all__ if name not in text] == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs_and_ends_as_it_should(path: Path, tmp_path: Path) -> None:
    assert re.fullmatch(LAST_LINES[path.stem], run(tmp_path, str(path)).splitlines()[-1])


def test_there_are_examples() -> None:
    assert {path.stem for path in EXAMPLES} == set(LAST_LINES)
