"""A graph that somebody wrote for LangGraph behaves in a run as it does under LangGraph: errors, state, options, output."""

import re
from pathlib import Path

import pytest

from .harness import CompletedCommand, RunHarness

HEAD = """
import operator, os, sqlite3, subprocess, sys
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypedDict
from langgraph.config import get_stream_writer, get_store
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime, get_runtime
from langgraph.store.memory import InMemoryStore
from pydantic import BaseModel
from agentos.workflows import Workflow

class State(TypedDict, total=False):
    topic: str
    anything: Any
    said: Annotated[list[str], operator.add]

builder = StateGraph(State)

def wait_for_writes(channel, count):
    database = sqlite3.connect(os.environ["AGENTOS_WORKFLOW_DB"])
    finished = "SELECT count(DISTINCT task_id) FROM writes WHERE checkpoint_ns = '' AND channel = ?"
    while database.execute(finished, (channel,)).fetchone()[0] < count:
        pass

def crash_once(name):
    marker = Path(name)
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), 9)
"""
TAIL = """
workflow = Workflow.from_graph(
    graph, items="topics/*.md", input=lambda item: {"topic": item.title},
    output=lambda state, item: {f"out/{item.id}.txt": "\\n".join(state["said"])}, **options
)
"""


@pytest.fixture
def project(harness: RunHarness) -> Path:
    (harness.project / "topics").mkdir()
    for number in (1, 2, 3):
        (harness.project / f"topics/{number}-topic.md").write_text(f"# Topic {number}\n\nSnow.\n")
    return harness.project


def run(harness: RunHarness, body: str, *arguments: object, options: str = "{}") -> CompletedCommand:
    graph = "" if " graph" in body or "graph =" in body else "graph = builder.compile()\n"
    (harness.project / "flow.py").write_text(f"{HEAD}{body}\n{graph}options = {options}{TAIL}")
    items = arguments or ("1",)
    return harness.run("run", "flow:workflow", *items, "--offline", program="agentos")


ONE_NODE = "builder.add_node('work', work)\nbuilder.add_edge(START, 'work')\n"


@pytest.mark.slow
def test_an_error_names_the_users_own_line_first_and_is_not_retried(
    harness: RunHarness, project: Path
) -> None:
    body = f"""
def work(state):
    class Reply(BaseModel):
        score: int
    return {{"said": [str(Reply(score="high").score)]}}
{ONE_NODE}"""
    done = run(harness, body)
    line = next(line for line in done.lines_of("TOPICS-1") if "FAILED" in line)
    assert re.search(r"ValidationError: 1 validation error for Reply \(flow\.py, line \d+\)", line), done.out
    assert (
        "flow.py, line " in done.out
        and 'in work: return {"said"' in done.out
        and "raised in pydantic/" in done.out
    )
    assert "1 attempt" in done.out and "Traceback" not in done.out
    verbose = run(harness, body, "1", "-v")
    assert "Traceback (most recent call last)" in verbose.out and "pydantic" in verbose.out


@pytest.mark.slow
def test_an_error_of_output_names_it_and_the_users_own_line(harness: RunHarness, project: Path) -> None:
    done = run(harness, f"def work(state):\n    return {{'said': [7]}}\n{ONE_NODE}")
    assert re.search(r"output\(\) raised TypeError: .* \(flow\.py, line \d+\)", done.out), done.out
    assert 'in <lambda>: output=lambda state, item: {f"out/' in done.out and "1 attempt" in done.out


@pytest.mark.slow
def test_an_error_in_a_group_is_shown_and_judged_like_any_other(harness: RunHarness, project: Path) -> None:
    body = f"""
import asyncio

async def look_up(found):
    return found["missing"]

async def work(state):
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(60))
        group.create_task(look_up({{}}))
{ONE_NODE}"""
    done = run(harness, body)
    assert re.search(r"FAILED: KeyError: 'missing' \(flow\.py, line \d+\)", done.out), done.out
    assert 'in look_up: return found["missing"]' in done.out and "1 attempt" in done.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("raised", "options", "attempts"),
    [
        ("KeyError('x')", "{}", 1),
        ("RuntimeError('x')", "{}", 2),
        ("KeyError('x')", "{'retry_on': (KeyError,)}", 2),
        ("RuntimeError('x')", "{'retry_on': lambda error: False}", 1),
        ("RuntimeError('x')", "{'retry_on': lambda error: error.code}", 1),
    ],
)
def test_which_errors_are_tried_again_is_settable(
    harness: RunHarness, project: Path, raised: str, options: str, attempts: int
) -> None:
    body = f"def work(state):\n    raise {raised}\n{ONE_NODE}"
    done = run(harness, body, "1", "--retries", "1", options=options)
    assert done.code == 1 and done.out.count(">>> Executing: work") == attempts, done.out


@pytest.mark.slow
def test_the_text_of_sys_exit_is_the_reason_of_the_failure(harness: RunHarness, project: Path) -> None:
    done = run(harness, f"async def work(state):\n    sys.exit('no licence for this')\n{ONE_NODE}")
    assert done.code == 1 and "FAILED: no licence for this" in done.out, done.out
    assert "1 attempt" in done.out
    threaded = run(harness, f"def work(state):\n    sys.exit(3)\n{ONE_NODE}", "2")
    assert "FAILED: its code called sys.exit(3)" in threaded.out, threaded.out


@pytest.mark.slow
def test_children_of_a_node_have_default_signal_handling(harness: RunHarness, project: Path) -> None:
    body = f"""
def work(state):
    child = subprocess.Popen(["sleep", "600"])
    child.terminate()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        import time
        os.write(writing, b"started")
        time.sleep(600)
        os._exit(0)
    os.read(reading, 7)
    os.kill(pid, 15)
    return {{"said": [f"{{child.wait(60)}} {{os.WTERMSIG(os.waitpid(pid, 0)[1])}}"]}}
{ONE_NODE}"""
    done = run(harness, body)
    assert done.code == 0, done.out + done.err
    assert (project / "out/TOPICS-1.txt").read_text() == "-15 15"


@pytest.mark.slow
def test_what_a_node_writes_to_its_stream_reaches_the_log(harness: RunHarness, project: Path) -> None:
    body = f"""
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
llm = GenericFakeChatModel(messages=iter(["one two\\nthree"]))

class Blocks(GenericFakeChatModel):
    def _stream(self, messages, **options):
        for piece in ("four ", "five\\nsix"):
            block = {{"type": "text", "text": piece, "index": 0}}
            yield ChatGenerationChunk(message=AIMessageChunk(content=[block]))

def work(state):
    write = get_stream_writer()
    write("half done")
    write({{"share": 0.5}})
    for chunk in (*llm.stream("count"), *Blocks(messages=iter([])).stream("count")):
        pass
    return {{"said": ["done"]}}
{ONE_NODE}"""
    lines = run(harness, body).lines_of("TOPICS-1")
    assert {"half done", '{"share": 0.5}', "one two", "three", "four five", "six"} <= set(lines)


PARALLEL_KILL = """
class Colour(Enum):
    RED = "red"

@dataclass
class Note:
    text: str
    colour: Colour

class Plan(BaseModel):
    steps: list[str]

def quick(state):
    return {"said": ["quick"], "anything": {"plan": Plan(steps=["a"]), "note": Note("n", Colour.RED)}}

def slow(state):
    wait_for_writes("said", 2)
    crash_once("slow-died")
    return {"said": ["slow"]}

def mark(state):
    return {"said": ["mark"]}

def after(state):
    plan, note = state["anything"]["plan"], state["anything"]["note"]
    return {"said": [f"{type(plan).__name__} {plan.steps} {type(note).__name__} {note.colour}"]}

inner = StateGraph(State)
inner.add_node("mark", mark)
inner.add_edge(START, "mark")
for name, node in (("quick", quick), ("slow", slow), ("mark", inner.compile()), ("after", after)):
    builder.add_node(name, node)
for name in ("quick", "slow", "mark"):
    builder.add_edge(START, name)
builder.add_edge(["quick", "slow", "mark"], "after")
"""


def test_after_a_kill_only_unfinished_nodes_run_and_the_state_comes_back_as_it_was(
    harness: RunHarness, project: Path
) -> None:
    done = run(harness, PARALLEL_KILL)
    assert done.code == 0, done.out + done.err
    executed = [
        line.removeprefix(">>> Executing: ") for line in done.lines_of("TOPICS-1") if "Executing" in line
    ]
    assert sorted(executed) == ["after", "mark", "mark/mark", "quick", "slow", "slow"], done.out
    said = sorted((project / "out/TOPICS-1.txt").read_text().splitlines())
    assert said == ["Plan ['a'] Note Colour.RED", "mark", "quick", "slow"]
    assert "Blocked" not in done.out and "unregistered" not in done.out


@pytest.mark.slow
def test_a_type_that_is_not_allowed_is_an_error_that_says_how_to_allow_it(
    harness: RunHarness, project: Path
) -> None:
    body = f"""
from langchain_core.prompt_values import StringPromptValue

def work(state):
    return {{"said": ["done"], "anything": StringPromptValue(text="why")}}
{ONE_NODE}"""
    done = run(harness, body)
    assert (
        done.code == 1
        and "its state contains an object of type langchain_core.prompt_values.StringPromptValue" in done.out
    ), done.out
    assert "serde=[StringPromptValue]" in done.out and "Blocked" not in done.out
    assert run(harness, body, options="{'serde': [StringPromptValue]}").code == 0


@pytest.mark.slow
def test_store_context_and_recursion_limit_of_a_graph_are_kept(harness: RunHarness, project: Path) -> None:
    body = """
@dataclass
class Tone:
    name: str = "plain"
    words: int = 5

def work(state, runtime: Runtime[Tone]):
    runtime.store.put(("seen",), state["topic"], {"by": runtime.context.name})
    return {"said": [f"{runtime.context.name} {runtime.context.words}"]}

def recall(state):
    names = sorted(item.key for item in get_store().search(("seen",)))
    return {"said": [", ".join(names)]}

builder = StateGraph(State, context_schema=Tone)
builder.add_sequence([work, recall])
builder.add_edge(START, "work")
graph = builder.compile(store=InMemoryStore(), name="remembering")
"""
    done = run(harness, body, "1", "2", options="{'context': {'name': 'warm'}}")
    assert done.code == 0, done.out + done.err
    assert (project / "out/TOPICS-1.txt").read_text() == "warm 5\nTopic 1"
    assert (project / "out/TOPICS-2.txt").read_text() == "warm 5\nTopic 1, Topic 2"
    assert [path.name for path in harness.home.glob("stores/*/*.db")] == ["topics.db"]


@pytest.mark.slow
def test_a_graph_that_does_not_end_fails_at_its_limit_also_when_it_is_run_again(
    harness: RunHarness, project: Path
) -> None:
    body = f"""
def work(state):
    return {{"said": ["again"]}}
{ONE_NODE}builder.add_conditional_edges("work", lambda state: "work")
graph = builder.compile().with_config(recursion_limit=7)
"""
    done = run(harness, body)
    assert done.code == 1 and "the graph took 7 steps and did not end" in done.out, done.out
    assert "recursion_limit=..." in done.out and done.out.count("Executing") in (7, 8)
    assert "Executing" not in run(harness, body).out


@pytest.mark.slow
def test_an_item_whose_next_node_was_renamed_fails_and_continues_once_it_is_back(
    harness: RunHarness, project: Path
) -> None:
    body = """
def write(state):
    return {"said": ["draft"]}

def publish(state):
    if not Path("ready").exists():
        raise ValueError("not ready")
    return {"said": ["published"]}

builder.add_sequence([("write", write), ("publish", publish)])
builder.add_edge(START, "write")
"""
    assert run(harness, body).code == 1
    (project / "ready").touch()
    renamed = run(harness, body.replace('"publish"', '"release"'))
    assert renamed.code == 1 and not (project / "out").exists()
    assert "its checkpoint continues at the node publish, which the graph no longer has" in renamed.out
    assert "--fresh TOPICS-1" in renamed.out
    assert run(harness, body).code == 0
    assert (project / "out/TOPICS-1.txt").read_text() == "draft\npublished"


@pytest.mark.slow
def test_an_entrypoint_of_the_functional_api_runs_and_keeps_its_finished_tasks(
    harness: RunHarness, project: Path
) -> None:
    body = """
from langgraph.func import entrypoint, task
from langgraph.types import interrupt

@task
def count(text):
    Path(f"counted-{text[-1]}-{os.getpid()}").touch()
    return len(text)

@entrypoint()
def graph(state):
    size = count(state["topic"]).result()
    wait_for_writes("__return__", 1)
    crash_once("entry-died")
    return {"said": [f"{size}"]}
"""
    done = run(harness, body)
    assert done.code == 0, done.out + done.err
    assert (project / "out/TOPICS-1.txt").read_text() == "7"
    assert len(list(project.glob("counted-*"))) == 1, "the task that had ended did not run again"
    executed = [line for line in done.lines_of("TOPICS-1") if line == ">>> Executing: count"]
    assert len(executed) == 1
