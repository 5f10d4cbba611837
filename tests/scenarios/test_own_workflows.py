"""User-defined workflows: from a file, from a package, and broken ones."""

import json
import re
import signal
from pathlib import Path

import pytest

from tests.audits.tree import ROOT

from .harness import CompletedCommand, RunHarness

TUTORIAL = ROOT / "docs/tutorial-own-workflow.md"


def tutorial_code() -> str:
    """The class of the tutorial; the graph that comes before it is the starter of `agentos init --workflow`."""
    found = re.findall(r"```python\n(.*?)```", TUTORIAL.read_text("utf-8"), re.DOTALL)
    assert found[0] == (ROOT / "src/agentos/project_template/essays.py").read_text("utf-8")
    return str(found[1])


@pytest.fixture
def project(harness: RunHarness) -> Path:
    (harness.project / "notes").mkdir()
    for number in (1, 2, 3):
        (harness.project / "notes" / f"{number}-note.md").write_text(f"# Note {number}\n\nSnow falls.\n")
    return harness.project


def install(harness: RunHarness, code: str, *names: str, module: str = "plugged") -> str:
    """Installs a module with its entry points the way pip does; returns the path to put on PYTHONPATH."""
    site = harness.root / "site"
    site.mkdir(exist_ok=True)
    (site / f"{module}.py").write_text(code)
    metadata = site / f"{module}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    lines = [f"{name.partition('=')[0]} = {name.partition('=')[2]}" for name in names]
    (metadata / "entry_points.txt").write_text("\n".join(["[agentos.workflows]", *lines, ""]))
    return str(site)


def run(harness: RunHarness, *arguments: object, **env: str) -> CompletedCommand:
    return harness.run("run", *arguments, program="agentos", **env)


@pytest.mark.slow
def test_the_tutorial_workflow_has_forty_lines_and_works(harness: RunHarness, project: Path) -> None:
    code = tutorial_code()
    assert len(code.splitlines()) <= 40
    (project / "haiku_flow.py").write_text(code)
    done = run(harness, "haiku_flow:Haiku", "--all", "--parallel", "--offline")
    assert done.code == 0, done.out + done.err
    assert done.lines_of("HAIKU-2")[:2] == [">>> Executing: N0_write", ">>> Executing: N1_save"]
    assert sorted(path.name for path in (project / "haikus").iterdir()) == [
        "HAIKU-1.md",
        "HAIKU-2.md",
        "HAIKU-3.md",
    ]
    assert not harness.databases() and "Nothing is pending" in run(harness, "haiku_flow:Haiku", "--all").out
    again = re.findall(r"^\$ agentos (run haiku.* --fresh.*)$", TUTORIAL.read_text("utf-8"), re.MULTILINE)
    assert [harness.run(*command.split(), program="agentos").code for command in again] == [0], "needs no key"
    assert "Every item is done. " in harness.run("status", program="agentos").lines[-1]
    assert "every item is done. " in harness.run("wait", program="agentos").err


@pytest.mark.slow
def test_a_workflow_from_an_installed_package_is_found_by_name(harness: RunHarness, project: Path) -> None:
    site = install(harness, tutorial_code(), "haiku=plugged:Haiku")
    done = run(harness, "haiku", "2", "--offline", PYTHONPATH=site)
    assert done.code == 0 and "Done in" in done.lines_of("HAIKU-2")[-1], done.out + done.err
    unknown = run(harness, "haikoo", "--all", PYTHONPATH=site)
    assert unknown.code == 2 and "available: lld, issue, haiku" in unknown.err


@pytest.mark.slow
def test_a_module_with_functions_is_a_workflow_too(harness: RunHarness, project: Path) -> None:
    code = tutorial_code() + (
        "\nname, prefix = 'haiku', 'HAIKU'\n_workflow = Haiku()\n"
        "candidates, status, graph = _workflow.candidates, _workflow.status, _workflow.graph\n"
    )
    site = install(harness, code, "haiku=plugged")
    assert run(harness, "haiku", "1", "--offline", PYTHONPATH=site).code == 0


@pytest.mark.slow
def test_an_interrupted_item_resumes_after_its_last_finished_node(harness: RunHarness, project: Path) -> None:
    code = tutorial_code().replace(
        "        def save(state):\n",
        "        def save(state):\n            1 / len(list(context.root.glob('go')))\n",
    )
    assert code != tutorial_code()
    (project / "haiku_flow.py").write_text(code)
    first = run(harness, "haiku_flow:Haiku", "1", "--offline", "--retries", "0")
    assert first.code == 1 and "ZeroDivisionError" in first.out
    (project / "go").touch()
    second = run(harness, "haiku_flow:Haiku", "1", "--offline")
    assert second.code == 0
    assert [line for line in second.lines_of("HAIKU-1") if "Executing" in line] == [">>> Executing: N1_save"]


GOOD = "    name, prefix = 'mine', 'MINE'\n    def status(self, project, item): ...\n    def graph(self, context): ...\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "import no_such_module\n",
            "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("1 / 0\n", "cannot be loaded: ZeroDivisionError: division by zero (plugged.py, line 1)"),
        ("import sys\nsys.exit(0)\n", "cannot be loaded: SystemExit"),
        ("def Mine(:\n", "cannot be loaded: SyntaxError: invalid syntax (plugged.py, line 1). Fix it"),
        ("Mine = 7\n", "is not a workflow: missing name, prefix, candidates, status, graph"),
        ("class Mine:\n    def __init__(self, x): ...\n", "expected a class without arguments"),
        (
            f"class Mine:\n{GOOD}    def candidates(self, project): return 7\n",
            "candidates() returned 7; expected",
        ),
        (
            f"class Mine:\n{GOOD}    def candidates(self, project): return {{}}['x']\n",
            "candidates() raised KeyError",
        ),
        (f"class Mine:\n{GOOD}    candidates = 7\n", "candidates() raised TypeError"),
        (
            f"class Mine:\n{GOOD.replace('mine', '../x')}    def candidates(self, project): return []\n",
            "has name = '../x'; expected",
        ),
        (
            f"class Mine:\n{GOOD.replace('mine', 'lld')}    def candidates(self, project): return []\n",
            "the name of a built-in workflow",
        ),
        (
            "from agentos.workflows import *\n"
            f"class Mine:\n{GOOD}    def candidates(self, project):\n"
            "        return [Candidate(Item('../../x', 'mine', 1, '', ''), ItemStatus.PENDING)]\n",
            "expected items with id MINE-1",
        ),
    ],
)
def test_a_broken_workflow_gives_one_clear_error_and_affects_no_other(
    harness: RunHarness, project: Path, code: str, message: str
) -> None:
    site = install(harness, code, "mine=plugged:Mine")
    done = run(harness, "mine", "--all", "--offline", PYTHONPATH=site)
    assert done.code == 3 and message in done.err, done
    assert len(done.err.splitlines()) == 1 and not harness.home.joinpath("logs").exists()
    assert run(harness, "lld", "--all", "--dry-run", PYTHONPATH=site).code == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:Thing", "no module 'nowhere'"),
        ("json:Thing", f"classes there: JSONDecodeError, JSONDecoder, JSONEncoder (json is {json.__file__})"),
        ("../x:y", "invalid workflow"),
    ],
)
def test_an_unknown_workflow_is_a_usage_error(
    harness: RunHarness, project: Path, name: str, message: str
) -> None:
    done = run(harness, name, "--all")
    assert done.code == 2 and message in done.err, done


def test_a_name_registered_by_two_packages_is_an_error(harness: RunHarness, project: Path) -> None:
    install(harness, tutorial_code(), "haiku=plugged:Haiku")
    site = install(harness, tutorial_code(), "haiku=other:Haiku", module="other")
    done = run(harness, "haiku", "--all", PYTHONPATH=site)
    assert done.code == 3 and "registered by other and plugged" in done.err


def test_a_graph_that_cannot_be_built_fails_its_item_without_a_retry(
    harness: RunHarness, project: Path
) -> None:
    code = tutorial_code().replace(
        "        graph = StateGraph(State)\n", "        graph = StateGraph(Stat)\n"
    )
    (project / "haiku_flow.py").write_text(code)
    done = run(harness, "haiku_flow:Haiku", "1", "--offline")
    assert done.code == 1 and done.out.count("graph() raised NameError") == 2
    assert harness.events("item_retried") == []


def test_files_in_the_project_never_shadow_a_module(harness: RunHarness) -> None:
    """Neither in the coordinator nor in its child processes."""
    harness.issue(42)
    for name in ("json", "langgraph", "click", "agentos"):
        (harness.project / f"{name}.py").write_text("raise SystemExit('pwned')\n")
    done = harness.run("42", "--offline")
    assert done.code == 0 and "pwned" not in done.out + done.err


def test_the_built_in_workflows_load_like_any_other() -> None:
    from agentos.workflows.registry import BUILT_IN, load_workflow

    for name, origin in BUILT_IN.items():
        workflow = load_workflow(origin, "")
        assert workflow.name == name and workflow.origin == origin


GRAPH = """
from typing import TypedDict
from langgraph.graph import START, StateGraph
from agentos.workflows import Workflow

class State(TypedDict, total=False):
    topic: str
    text: str

builder = StateGraph(State)
builder.add_node("write", lambda state: {"text": state["topic"].upper()})
builder.add_edge(START, "write")

workflow = Workflow.from_graph(
    builder.compile(),
    items="notes/*.md",
    input=lambda item: {"topic": item.text},
    output=lambda state, item: {f"out/{item.id}.md": state["text"]},
)
"""


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["process", "inline"])
def test_an_existing_graph_runs_over_files_and_writes_its_documents_once(
    harness: RunHarness, project: Path, engine: str
) -> None:
    (project / "notes" / "snow.md").write_text("white")
    (project / "flow.py").write_text(GRAPH)
    done = run(harness, "flow:workflow", "--all", "--parallel", "3", "--offline", AGENTOS_ENGINE=engine)
    assert done.code == 0, done.out + done.err
    assert (project / "out/NOTES-snow.md").read_text() == "WHITE"
    assert len(list((project / "out").iterdir())) == 4 and not harness.databases()
    assert done.out.count(">>> Executing: write") == 4
    assert "Nothing is pending" in run(harness, "flow:workflow", "--all", "--offline").out
    again = run(harness, "flow:workflow", "snow", "--fresh", "--offline")
    assert again.code == 0 and "Done in" in again.lines_of("NOTES-snow")[-1]


CHATTING = """
import os, signal
from pathlib import Path
from typing import Annotated, TypedDict
import operator
import agentos
from agentos.workflows import ModelRequest, Workflow
from langgraph.graph import START, StateGraph
from langgraph.types import Send

class State(TypedDict, total=False):
    topic: str
    texts: Annotated[list[str], operator.add]

llm = agentos.model("drafter")

def fan_out(state):
    return [Send("write", {"topic": f"{state['topic']} {part}"}) for part in ("a", "b", "a")]

def write(state):
    first = llm.invoke(state["topic"])
    llm.batch([state["topic"], "again"])
    marker = Path(f"killed {state['topic'].split()[-1]}")
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"texts": [first.content]}

async def end(state):
    await llm.ainvoke("the end")
    return {}

builder = StateGraph(State)
builder.add_node("write", write)
builder.add_node("end", end)
builder.add_conditional_edges(START, fan_out, ["write"])
builder.add_edge("write", "end")
workflow = Workflow.from_graph(
    builder, items="notes/1-*.md", input=lambda item: {"topic": item.name}, name="chat",
    output=lambda state, item: {"out.txt": str(len(state["texts"]))},
)
"""


@pytest.mark.slow
def test_no_answer_is_paid_for_twice_when_workers_are_killed_between_their_calls(
    harness: RunHarness, project: Path
) -> None:
    (project / "flow.py").write_text(CHATTING)
    server = harness.server()
    done = run(harness, "flow:workflow", "--all", "--retries", "4")
    assert done.code == 0, done.out + done.err
    assert (project / "out.txt").read_text() == "3"
    assert (project / "killed a").exists() and (project / "killed b").exists()
    answered = len(server.answered())
    # Three branches with three calls each and one at the end; a kill may lose those that were in flight.
    assert 10 <= answered <= 10 + 2 * 3, done.out


OWN_CLIENT = """
import os
from typing import TypedDict
import google.genai
import openai
from langgraph.graph import START, StateGraph
from agentos.workflows import Workflow

openai.OpenAI()  # raises without a key

class State(TypedDict, total=False):
    topic: str
    text: str

def write(state):
    client = google.genai.Client()
    answer = client.models.generate_content(model="gemini-2.5-pro", contents=state["topic"])
    print("tool", os.environ["SEARCH_API_KEY"][::-1], os.environ.get("OTHER_TOKEN", "none"))
    return {"text": answer.text}

builder = StateGraph(State)
builder.add_node("write", write)
builder.add_edge(START, "write")
workflow = Workflow.from_graph(
    builder, items="notes/*.md", input=lambda item: {"topic": item.text}, env=["SEARCH_API_KEY"],
    output=lambda state, item: {f"out/{item.name}.md": state["text"]},
)
"""


@pytest.mark.slow
def test_models_that_a_graph_makes_itself_use_the_pool_through_the_gateway(
    harness: RunHarness, project: Path
) -> None:
    (project / "flow.py").write_text(OWN_CLIENT)
    server = harness.server()
    unset = run(harness, "flow:workflow", "--all")
    assert unset.code == 3 and "needs the environment variable SEARCH_API_KEY" in unset.err
    keys = {"SEARCH_API_KEY": "search-1234567", "OTHER_TOKEN": "other-1234567"}
    done = run(harness, "flow:workflow", "--all", "--parallel", "3", **keys)
    assert done.code == 0, done.out + done.err
    assert "because they look like credentials: OTHER_TOKEN. To pass one: --env OTHER_TOKEN" in done.out
    assert "tool 7654321-hcraes none" in done.lines_of("NOTES-2")
    assert len(server.answered()) == 3
    items = harness.summary()["items"]
    assert all(item["usage"]["calls"] == 1 and item["cost"] for item in items), items
    again = run(
        harness, "flow:workflow", "2", "--fresh", "--env", "OTHER_TOKEN", "--budget", "0.000001", **keys
    )
    assert again.code == 75 and "--budget" in again.out, again.out
    taken = run(harness, "flow:workflow", "2", "--fresh", "--env", "GEMINI_API_KEY_1", **keys)
    assert taken.code == 2 and "is a key of the pool" in taken.err, taken.err


@pytest.mark.slow
def test_the_starter_of_init_runs_as_the_tutorial_says(harness: RunHarness) -> None:
    made = harness.run("init", "mine", "--workflow", program="agentos")
    assert made.code == 0 and "created  essays.py" in made.out and "essays:workflow" in made.out
    project = harness.project / "mine"
    commands = re.findall(r"^\$ agentos (run essays.*)$", TUTORIAL.read_text("utf-8"), re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        done = harness.run(*command.split(), "--repo", project, program="agentos")
        assert done.code == 0, done.out + done.err
    assert (project / "essays/snow.md").read_text()
    assert "kept     essays.py" in harness.run("init", "mine", "--workflow", program="agentos").out
    assert not (project / "issues").exists()


ASKING = """
import asyncio
import operator
from typing import Annotated, TypedDict
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from agentos.workflows import Candidate, ItemError, ItemStatus, ModelRequest, Workflow, folder_items

class State(TypedDict, total=False):
    part: int
    count: Annotated[int, operator.add]

class Asking(Workflow):
    name, prefix, folders = "asking", "ASK", ("notes",)

    def candidates(self, project):
        return [Candidate(item, ItemStatus.PENDING) for item in folder_items(self, project, "notes")]

    def status(self, project, item):
        return ItemStatus.PENDING

    def graph(self, context):
        async def twice(state):
            request = ModelRequest("drafter", "the same")
            try:
                context.ask_sync("one", request)
            except ItemError as error:
                print(error)
            await asyncio.gather(context.ask("one", request), context.ask("one", request))

        def own_loop(state):
            asyncio.run(context.ask("one", ModelRequest("drafter", "x")))

        def branch(state):
            context.ask_sync("one", ModelRequest("drafter", f"branch {state['part']}"))
            return {"count": 1}

        async def loop(state):
            await context.ask("one", ModelRequest("drafter", f"loop {state['count']}"))
            return {"count": 1}

        def print_count(state):
            print("count", state["count"])

        graph = StateGraph(State)
        for node in (twice, own_loop, branch, loop, print_count):
            graph.add_node(node.__name__, node)
        first = {1: ["own_loop"], 2: ["twice"], 3: [Send("branch", {"part": part}) for part in range(3)]}
        graph.add_conditional_edges(START, lambda state: first[context.item.number], ["twice", "own_loop", "branch"])
        graph.add_edge("branch", "loop")
        graph.add_conditional_edges("loop", lambda state: "print_count" if state["count"] > 5 else "loop")
        return graph
"""


@pytest.mark.slow
def test_one_name_for_many_calls_works_and_wrong_uses_are_errors_at_once(
    harness: RunHarness, project: Path
) -> None:
    (project / "flow.py").write_text(ASKING)
    server = harness.server()
    done = run(harness, "flow:Asking", "--all", "--parallel", "3")
    assert done.code == 1, done.out + done.err
    assert "context.ask_sync(...)" in next(line for line in done.lines_of("ASK-1") if "FAILED" in line)
    assert any("write await context.ask(...)" in line for line in done.lines_of("ASK-2"))
    assert "never awaited" not in done.out
    assert "give each a name of its own" in next(line for line in done.lines_of("ASK-2") if "FAILED" in line)
    for item in ("ASK-1", "ASK-2"):
        assert any("flow.py, line " in line for line in done.lines_of(item)), done.out
    assert "count 6" in done.lines_of("ASK-3")
    assert len([call for call in server.answered() if "the same" not in str(call)]) >= 6


WAITING = """
from typing import TypedDict
from langgraph.graph import START, StateGraph
import agentos
from agentos.workflows import Workflow

llm = agentos.model("drafter")

class State(TypedDict, total=False):
    topic: str

def sync_node(state):
    llm.invoke("first")
    llm.invoke("second")
    return {}

async def async_node(state):
    await llm.ainvoke("first")
    await llm.ainvoke("second")
    return {}

def workflow(node):
    builder = StateGraph(State)
    builder.add_node("ask", node)
    builder.add_edge(START, "ask")
    return Workflow.from_graph(
        builder, items="notes/1-*.md", input=lambda item: {"topic": ""}, name=node.__name__, gateway=False
    )

sync, asynchronous = workflow(sync_node), workflow(async_node)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sync", "asynchronous"])
def test_a_run_that_is_stopped_while_a_model_waits_for_a_key_is_interrupted_not_failed(
    harness: RunHarness, project: Path, name: str
) -> None:
    (project / "flow.py").write_text(WAITING)
    harness.server()
    going = harness.start(
        *("run", f"flow:{name}", "--all"),
        program="agentos",
        AGENTOS_CREDENTIAL_LIMIT="1",
        AGENTOS_SIMULATE_429="1",
    )
    going.wait_for("All keys rate limited")
    going.signal(signal.SIGINT)
    done = going.wait()
    assert done.code == 130 and "1 interrupted" in done.out and "FAILED" not in done.out, done.out
