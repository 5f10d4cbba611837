"""Workflows of one's own: from a file, from a package, and broken ones."""

import re
from pathlib import Path

import pytest

from tests.audits.tree import ROOT

from .harness import CompletedCommand, RunHarness

TUTORIAL = ROOT / "docs/tutorial-own-workflow.md"


def tutorial_code() -> str:
    found = re.search(r"```python\n(.*?)```", TUTORIAL.read_text("utf-8"), re.DOTALL)
    assert found
    return found[1]


@pytest.fixture
def project(harness: RunHarness) -> Path:
    (harness.project / "notes").mkdir()
    for number in (1, 2, 3):
        (harness.project / "notes" / f"{number}-note.md").write_text(f"# Note {number}\n\nSnow falls.\n")
    return harness.project


def install(harness: RunHarness, code: str, *names: str, module: str = "plugged") -> str:
    """A package as pip would leave it: the module, and its metadata with the entry points; gives the path."""
    site = harness.root / "site"
    site.mkdir(exist_ok=True)
    (site / f"{module}.py").write_text(code)
    metadata = site / f"{module}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    lines = [f"{name.partition('=')[0]} = {name.partition('=')[2]}" for name in names]
    (metadata / "entry_points.txt").write_text("\n".join(["[agentos.workflows]", *lines, ""]))
    return str(site)


def run(harness: RunHarness, *words: object, **env: str) -> CompletedCommand:
    return harness.run("run", *words, program="agentos", **env)


@pytest.mark.slow
def test_the_tutorial_is_forty_lines_and_works_as_it_says(harness: RunHarness, project: Path) -> None:
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
    again = re.findall(r"^\$ agentos (run .* --fresh.*)$", TUTORIAL.read_text("utf-8"), re.MULTILINE)
    assert [harness.run(*words.split(), program="agentos").code for words in again] == [0], (
        "without a key too"
    )
    assert "Everything is done. " in harness.run("status", program="agentos").lines[-1]
    assert "everything is done. " in harness.run("wait", program="agentos").err


@pytest.mark.slow
def test_an_installed_package_is_found_by_its_name(harness: RunHarness, project: Path) -> None:
    site = install(harness, tutorial_code(), "haiku=plugged:Haiku")
    done = run(harness, "haiku", "2", "--offline", PYTHONPATH=site)
    assert done.code == 0 and "Done in" in done.lines_of("HAIKU-2")[-1], done.out + done.err
    unknown = run(harness, "haikoo", "--all", PYTHONPATH=site)
    assert unknown.code == 2 and "there are: lld, issue, haiku" in unknown.err


def test_a_module_of_functions_is_a_workflow_too(harness: RunHarness, project: Path) -> None:
    code = tutorial_code() + (
        "\nname, prefix = 'haiku', 'HAIKU'\n_one = Haiku()\n"
        "candidates, standing, graph = _one.candidates, _one.standing, _one.graph\n"
    )
    site = install(harness, code, "haiku=plugged")
    assert run(harness, "haiku", "1", "--offline", PYTHONPATH=site).code == 0


@pytest.mark.slow
def test_an_item_that_was_interrupted_goes_on_from_its_last_node(harness: RunHarness, project: Path) -> None:
    code = tutorial_code().replace(
        "        def save(state):\n",
        "        def save(state):\n            1 / len(list(desk.root.glob('go')))\n",
    )
    assert code != tutorial_code()
    (project / "haiku_flow.py").write_text(code)
    first = run(harness, "haiku_flow:Haiku", "1", "--offline", "--retries", "0")
    assert first.code == 1 and "ZeroDivisionError" in first.out
    (project / "go").touch()
    second = run(harness, "haiku_flow:Haiku", "1", "--offline")
    assert second.code == 0
    assert [line for line in second.lines_of("HAIKU-1") if "Executing" in line] == [">>> Executing: N1_save"]


GOOD = "    name, prefix = 'mine', 'MINE'\n    def standing(self, project, item): ...\n    def graph(self, desk): ...\n"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            "import no_such_module\n",
            "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("1 / 0\n", "cannot be loaded: ZeroDivisionError: division by zero (plugged.py, line 1)"),
        ("import sys\nsys.exit(0)\n", "cannot be loaded: SystemExit"),
        ("def Mine(:\n", "cannot be loaded: SyntaxError"),
        ("Mine = 7\n", "is no workflow, it lacks name, prefix, candidates, standing, graph"),
        ("class Mine:\n    def __init__(self, x): ...\n", "expected a class without arguments"),
        (
            f"class Mine:\n{GOOD}    def candidates(self, project): return 7\n",
            "candidates() gave 7; expected",
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
            "which is a built-in one's",
        ),
        (
            "from agentos.workflows import *\n"
            f"class Mine:\n{GOOD}    def candidates(self, project):\n"
            "        return [Candidate(Item('../../x', 'mine', 1, '', ''), Standing.PENDING)]\n",
            "expected items with id MINE-1",
        ),
    ],
)
def test_a_broken_plugin_is_one_clear_error_and_disturbs_nobody(
    harness: RunHarness, project: Path, code: str, says: str
) -> None:
    site = install(harness, code, "mine=plugged:Mine")
    done = run(harness, "mine", "--all", "--offline", PYTHONPATH=site)
    assert done.code == 3 and says in done.err, done
    assert len(done.err.splitlines()) == 1 and not harness.home.joinpath("logs").exists()
    assert run(harness, "lld", "--all", "--dry-run", PYTHONPATH=site).code == 0


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("nowhere:Thing", "there is no module 'nowhere'"),
        ("json:Thing", "there is no 'Thing'; classes there: JSONDecodeError, JSONDecoder, JSONEncoder"),
        ("../x:y", "names no workflow"),
    ],
)
def test_what_is_not_there_is_a_usage_error(harness: RunHarness, project: Path, word: str, says: str) -> None:
    done = run(harness, word, "--all")
    assert done.code == 2 and says in done.err, done


def test_a_name_that_two_packages_claim_is_told(harness: RunHarness, project: Path) -> None:
    install(harness, tutorial_code(), "haiku=plugged:Haiku")
    site = install(harness, tutorial_code(), "haiku=other:Haiku", module="other")
    done = run(harness, "haiku", "--all", PYTHONPATH=site)
    assert done.code == 3 and "registered by other and plugged" in done.err


def test_a_graph_that_cannot_be_built_fails_its_item_at_once(harness: RunHarness, project: Path) -> None:
    code = tutorial_code().replace(
        "        graph = StateGraph(State)\n", "        graph = StateGraph(Stat)\n"
    )
    (project / "haiku_flow.py").write_text(code)
    done = run(harness, "haiku_flow:Haiku", "1", "--offline")
    assert done.code == 1 and done.out.count("graph() raised NameError") == 2
    assert harness.events("item_retried") == []


def test_files_of_the_project_stand_in_for_no_module(harness: RunHarness) -> None:
    """Neither in the coordinator nor in the processes that it starts."""
    harness.issue(42)
    for name in ("json", "langgraph", "click", "agentos"):
        (harness.project / f"{name}.py").write_text("raise SystemExit('pwned')\n")
    done = harness.run("42", "--offline")
    assert done.code == 0 and "pwned" not in done.out + done.err


def test_the_built_in_workflows_are_loaded_as_any_other() -> None:
    from agentos.workflows.registry import BUILT_IN, load_workflow

    for name, origin in BUILT_IN.items():
        workflow = load_workflow(origin, "")
        assert workflow.name == name and workflow.origin == origin
