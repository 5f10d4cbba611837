"""Graphs like LangGraph's own examples, unchanged but for the model and a few lines of glue, over a backlog and under kill -9."""

import itertools
import json
import os
import random
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.audits.tree import ROOT

from .counting_model import AnsweredCall, CountingModel
from .harness import (
    KEYS,
    CompletedCommand,
    Json,
    ProcessHandle,
    RunHarness,
    RunningCommand,
    descendants,
    wait_until,
)

PAGES = {
    "evaluator": "graph-evaluator-optimizer",
    "agent": "graph-agent-with-tools",
    "map_reduce": "graph-map-reduce",
    "approval": "graph-human-approval",
    "subgraphs": "graph-subgraphs",
}
FILES = ("remembering", "threaded", "functional")
GRAPHS = (*PAGES, *FILES)
ITEMS = PARALLEL = 3
CALLS_AT_ONCE = {
    "map_reduce": 3,
    "subgraphs": 2,
    "threaded": 2,
    "functional": 2,
}  # of one item, in parallel branches; others: 1
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
    add_topics(harness)
    (harness.project / "flow.py").write_text(source_of(graph))


def add_topics(harness: RunHarness) -> None:
    folder = harness.project / "topics"
    folder.mkdir(exist_ok=True)
    first = len(list(folder.iterdir())) + 1
    for number in range(first, first + ITEMS):
        (folder / f"{number}-topic.md").write_text(f"# Topic {number}\n\nSnow.\n")


def start(harness: RunHarness) -> RunningCommand:
    return harness.start("run", "flow:workflow", "--all", "--parallel", PARALLEL, program="agentos")


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


@dataclass(frozen=True, slots=True)
class Kill:
    """A time when the killed processes were gone and their work was not resumed yet, and how many workers that ended."""

    at: float
    workers: int


def counted_calls(harness: RunHarness) -> dict[int, Json]:
    """The calls that all runs have counted, by their output tokens: the server gives each call other ones."""
    calls = [call for run in harness.runs() for call in harness.events("call_completed", run)]
    found = {call["usage"]["output_tokens"]: call for call in calls}
    assert len(found) == len(calls), "a call was counted twice"
    return found


def check_the_counts(harness: RunHarness, model: CountingModel, lost: set[int]) -> None:
    """All that agentos counted, call by call, is what the server counted: tokens and dollars, but for what was `lost`."""
    counted = counted_calls(harness)
    log = {call.output_tokens: call for call in model.log}
    assert log.keys() - counted.keys() == lost and counted.keys() <= log.keys()
    for serial, call in counted.items():
        server = log[serial]
        assert (call["usage"]["calls"], call["usage"]["input_tokens"]) == (1, server.input_tokens)
        assert call["cost"] == pytest.approx(server.cost, rel=1e-9)
    tokens = sum(call["usage"]["input_tokens"] + call["usage"]["output_tokens"] for call in counted.values())
    server_calls = [call for serial, call in log.items() if serial not in lost]
    assert tokens == sum(call.input_tokens + call.output_tokens for call in server_calls)
    dollars = sum(call.cost for call in server_calls)
    assert sum(call["cost"] for call in counted.values()) == pytest.approx(dollars, rel=1e-9)


def interrupted_calls(model: CountingModel, kills: list[Kill], at_once: int) -> list[AnsweredCall]:
    """The answered calls that were made again. Each was in flight at a kill of its worker: among the last of its item."""
    repeated = []
    interrupted: dict[Kill, set[str]] = {}
    for prompt, count in model.answered.items():
        calls = [call for call in model.log if call.prompt == prompt]
        for call, following in itertools.pairwise(calls):
            between = [kill for kill in kills if call.arrived_at <= kill.at <= following.arrived_at]
            assert between, f"an answered call was made again without a kill: {prompt}, {count} times"
            earlier = [each for each in model.log if each.arrived_at <= between[0].at]
            before = [each for each in earlier if each.topic == call.topic]
            assert call in before[-at_once:], f"an answer was lost that had arrived before the kill: {prompt}"
            interrupted.setdefault(between[0], set()).add(call.topic)
            repeated.append(call)
    assert all(len(topics) <= kill.workers for kill, topics in interrupted.items()), interrupted
    return repeated


@pytest.mark.parametrize("graph", GRAPHS)
def test_the_glue_around_a_graph_has_at_most_ten_lines(graph: str) -> None:
    lines = source_of(graph).splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("workflow = "))
    glue = [line for line in lines[begin:] if line.strip()]
    glue += [line for line in lines[:begin] if "agentos" in line]
    assert len(glue) <= MAX_GLUE, glue


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
    check_the_counts(harness, model, set())
    printed = [run.out for run in runs]
    assert not any("Blocked" in out or "Traceback" in out for out in printed)


@pytest.mark.long
@pytest.mark.timeout(900)  # ten runs and more, on a machine that may be busy
@pytest.mark.parametrize("graph", GRAPHS)
def test_an_existing_graph_survives_ten_kills(harness: RunHarness, model: CountingModel, graph: str) -> None:
    prepare(harness, graph)
    chance = random.Random(graph)
    kills = list[Kill]()
    while len(kills) < KILLS:
        killed = kill_once(harness, model, chance)
        kills += killed
        if not answer_all(harness, graph) and not killed:
            add_topics(harness)  # every item has finished
    run_to_the_end(harness, graph)
    assert len(documents(harness)) == len(list((harness.project / "topics").iterdir()))
    assert not harness.databases()
    repeated = interrupted_calls(model, kills, CALLS_AT_ONCE.get(graph, 1))
    # Nobody can know the usage of an answer that its worker did not live to report: such a call was made again. Every other
    # call is counted, as the server counted it.
    lost = {call.output_tokens for call in model.log} - counted_calls(harness).keys()
    assert lost <= {call.output_tokens for call in repeated}
    check_the_counts(harness, model, lost)


def kill_once(harness: RunHarness, model: CountingModel, chance: random.Random) -> list[Kill]:
    """Kill a worker or the coordinator after some calls; none if all had ended before."""
    run = start(harness)
    before, calls = model.arrived, chance.randint(1, 4)
    wait_until(lambda: model.arrived >= before + calls or run.process.poll() is not None, 60)
    processes = [process for process in run.processes() if process.alive]
    victim = chance.choice([run.pid, *(process.pid for process in processes)])
    workers = {event["pid"] for event in harness.events("worker_started")}
    if run.process.poll() is not None:
        return []
    try:
        at = kill(victim, run, processes, model)
    except ProcessLookupError:
        return []
    run.wait(120)
    return [Kill(at, 1 if victim in workers else PARALLEL)]


def kill(victim: int, run: RunningCommand, processes: list[ProcessHandle], model: CountingModel) -> float:
    """Kill a process; returns a time after the last call of those that died and before their work is resumed."""
    pids = {victim, *(process.pid for process in descendants(victim))}  # the children die with their parent
    os.kill(run.pid, signal.SIGSTOP)  # nothing is started again before the time is known
    try:
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: not any(process.alive for process in processes if process.pid in pids), 60)
        if victim == run.pid:
            run.process.wait(60)
        model.settle()
        return time.monotonic()
    finally:
        if victim != run.pid:
            os.kill(run.pid, signal.SIGCONT)
