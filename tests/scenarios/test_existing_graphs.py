"""Graphs like LangGraph's own examples, unchanged but for the model and a few lines of glue, over a backlog and under kill -9."""

import json
import os
import random
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.audits.tree import ROOT

from .counting_model import CountingModel
from .harness import KEYS, CompletedCommand, RunHarness, RunningCommand, wait_until

PAGES = {
    "evaluator": "graph-evaluator-optimizer",
    "agent": "graph-agent-with-tools",
    "map_reduce": "graph-map-reduce",
    "approval": "graph-human-approval",
    "subgraphs": "graph-subgraphs",
}
FILES = ("remembering", "threaded", "functional")
GRAPHS = (*PAGES, *FILES)
ITEMS = 3
MAX_CALLS_AT_ONCE = 3 * ITEMS  # calls in flight when a run is killed: three branches of each item
MAX_GLUE = 10  # lines around the graph
KILLS = 10
ANSWERS = {"agent": '"yes"', "approval": '"ok"', "subgraphs": '"fine"'}


def source_of(graph: str) -> str:
    if graph in FILES:
        return (ROOT / f"tests/scenarios/graphs/{graph}.py").read_text("utf-8")
    page = (ROOT / f"docs/how-to/{PAGES[graph]}.md").read_text("utf-8")
    found = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert found
    return found[1]


@pytest.fixture
def model(harness: RunHarness) -> Iterator[CountingModel]:
    with CountingModel.serving() as serving:
        harness.urls.append(serving.url)
        harness.keys = KEYS
        yield serving


def prepare(harness: RunHarness, graph: str) -> None:
    (harness.project / "topics").mkdir()
    for number in range(1, ITEMS + 1):
        (harness.project / f"topics/{number}-topic.md").write_text(f"# Topic {number}\n\nSnow.\n")
    (harness.project / "flow.py").write_text(source_of(graph))


def start(harness: RunHarness) -> RunningCommand:
    return harness.start("run", "flow:workflow", "--all", "--parallel", "3", program="agentos")


def answer_all(harness: RunHarness, graph: str) -> int:
    """Answer every question that waits; returns how many items were answered."""
    listed = json.loads(harness.run("review", "--json", program="agentos").out)["items"]
    waiting = [item for item in listed if item["decision"] is None]
    for item in waiting:
        flags = [("--answer", f"{question['id']}={ANSWERS[graph]}") for question in item["questions"]]
        done = harness.run(
            "review", item["item"], *(word for flag in flags for word in flag), program="agentos"
        )
        assert done.code == 0, done.err
    return len(waiting)


def run_to_the_end(harness: RunHarness, graph: str) -> list[CompletedCommand]:
    runs = []
    for _ in range(6):
        runs.append(start(harness).wait(120))
        if not answer_all(harness, graph) and runs[-1].code == 0:
            return runs
    raise AssertionError(runs[-1].out + runs[-1].err)


def documents(harness: RunHarness) -> list[Path]:
    found = [path for path in harness.project.rglob("TOPICS-*.md") if ".agentos" not in path.parts]
    return sorted(found)


def reported(harness: RunHarness) -> tuple[int, int]:
    """The tokens that all runs have reported."""
    calls = [event for run in harness.runs() for event in harness.events("call_completed", run)]
    return sum(call["usage"]["input_tokens"] for call in calls), sum(
        call["usage"]["output_tokens"] for call in calls
    )


@pytest.mark.parametrize("graph", GRAPHS)
def test_the_glue_around_a_graph_has_at_most_ten_lines(graph: str) -> None:
    lines = source_of(graph).splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("workflow = "))
    glue = [line for line in lines[begin:] if line.strip()]
    glue += [line for line in lines[:begin] if "agentos" in line]
    assert len(glue) <= MAX_GLUE + (graph == "evaluator"), glue  # it has a model for each of its two roles


@pytest.mark.slow
@pytest.mark.parametrize("graph", [name for name in GRAPHS if name != "map_reduce"])
def test_an_existing_graph_runs_over_a_backlog(harness: RunHarness, model: CountingModel, graph: str) -> None:
    check_one_run(harness, model, graph)


def test_a_map_reduce_graph_runs_over_a_backlog(harness: RunHarness, model: CountingModel) -> None:
    check_one_run(harness, model, "map_reduce")


def check_one_run(harness: RunHarness, model: CountingModel, graph: str) -> None:
    prepare(harness, graph)
    runs = run_to_the_end(harness, graph)
    assert len(documents(harness)) == ITEMS, runs[-1].out + runs[-1].err
    assert not harness.databases()
    assert set(model.answered.values()) == {1}, "no prompt was answered twice"
    assert reported(harness) == model.total(once=False)
    printed = [run.out for run in runs]
    assert not any("Blocked" in out or "Traceback" in out for out in printed)


@pytest.mark.long
@pytest.mark.parametrize("graph", GRAPHS)
def test_an_existing_graph_survives_ten_kills(harness: RunHarness, model: CountingModel, graph: str) -> None:
    prepare(harness, graph)
    chance = random.Random(graph)
    kills = 0
    for _ in range(KILLS):
        kills += kill_once(harness, model, chance)
        answer_all(harness, graph)
    run_to_the_end(harness, graph)
    assert len(documents(harness)) == ITEMS
    assert not harness.databases()
    repeated = sum(count - 1 for count in model.answered.values())
    assert repeated <= kills * MAX_CALLS_AT_ONCE
    assert max(model.answered.values()) <= 1 + kills
    unique, everything, counted = model.total(once=True), model.total(once=False), reported(harness)
    assert all(low <= found <= high for low, found, high in zip(unique, counted, everything, strict=True))


def kill_once(harness: RunHarness, model: CountingModel, chance: random.Random) -> int:
    """Kill a worker or the coordinator after some calls; returns how many were killed before they had ended."""
    run = start(harness)
    before, calls = model.arrived, chance.randint(1, 4)
    wait_until(lambda: model.arrived >= before + calls or run.process.poll() is not None, 60)
    workers = [process for process in run.processes() if process.alive]
    victim = chance.choice([run.pid, *(process.pid for process in workers)])
    if run.process.poll() is not None:
        return 0
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        return 0
    if victim != run.pid:
        run.wait(120)
    else:
        run.process.wait(60)
        wait_until(lambda: not any(process.alive for process in workers), 60)
    return 1
