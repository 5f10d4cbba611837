"""Workflows of one's own: from a file, from a package, and broken ones."""

import re
from pathlib import Path

import pytest

from tests.audits.tree import ROOT

from .stage import Done, Stage

TUTORIAL = ROOT / "docs/tutorial-own-workflow.md"


def tutorial_code() -> str:
    found = re.search(r"```python\n(.*?)```", TUTORIAL.read_text("utf-8"), re.DOTALL)
    assert found
    return found[1]


@pytest.fixture
def project(stage: Stage) -> Path:
    (stage.project / "notes").mkdir()
    for number in (1, 2, 3):
        (stage.project / "notes" / f"{number}-note.md").write_text(f"# Note {number}\n\nSnow falls.\n")
    return stage.project


def install(stage: Stage, code: str, *names: str, module: str = "plugged") -> str:
    """A package as pip would leave it: the module, and its metadata with the entry points; gives the path."""
    site = stage.root / "site"
    site.mkdir(exist_ok=True)
    (site / f"{module}.py").write_text(code)
    metadata = site / f"{module}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    lines = [f"{name.partition('=')[0]} = {name.partition('=')[2]}" for name in names]
    (metadata / "entry_points.txt").write_text("\n".join(["[agentos.workflows]", *lines, ""]))
    return str(site)


def run(stage: Stage, *words: object, **env: str) -> Done:
    return stage.run("run", *words, program="agentos", **env)


def test_the_tutorial_is_forty_lines_and_works_as_it_says(stage: Stage, project: Path) -> None:
    code = tutorial_code()
    assert len(code.splitlines()) <= 40
    (project / "haiku_flow.py").write_text(code)
    done = run(stage, "haiku_flow:Haiku", "--all", "--parallel", "--offline")
    assert done.code == 0, done.out + done.err
    assert done.of("HAIKU-2")[:2] == [">>> Executing: N0_write", ">>> Executing: N1_save"]
    assert sorted(path.name for path in (project / "haikus").iterdir()) == [
        "HAIKU-1.md",
        "HAIKU-2.md",
        "HAIKU-3.md",
    ]
    assert not stage.databases() and "Nothing is pending" in run(stage, "haiku_flow:Haiku", "--all").out
    again = re.findall(r"^\$ agentos (run .* --fresh.*)$", TUTORIAL.read_text("utf-8"), re.MULTILINE)
    assert [stage.run(*words.split(), program="agentos").code for words in again] == [0], "without a key too"
    assert "Everything is done. " in stage.run("status", program="agentos").lines[-1]
    assert "everything is done. " in stage.run("wait", program="agentos").err


def test_an_installed_package_is_found_by_its_name(stage: Stage, project: Path) -> None:
    site = install(stage, tutorial_code(), "haiku=plugged:Haiku")
    done = run(stage, "haiku", "2", "--offline", PYTHONPATH=site)
    assert done.code == 0 and "Done in" in done.of("HAIKU-2")[-1], done.out + done.err
    unknown = run(stage, "haikoo", "--all", PYTHONPATH=site)
    assert unknown.code == 2 and "there are: lld, issue, haiku" in unknown.err


def test_a_module_of_functions_is_a_workflow_too(stage: Stage, project: Path) -> None:
    code = tutorial_code() + (
        "\nname, prefix = 'haiku', 'HAIKU'\n_one = Haiku()\n"
        "candidates, standing, graph = _one.candidates, _one.standing, _one.graph\n"
    )
    site = install(stage, code, "haiku=plugged")
    assert run(stage, "haiku", "1", "--offline", PYTHONPATH=site).code == 0


def test_an_item_that_was_interrupted_goes_on_from_its_last_node(stage: Stage, project: Path) -> None:
    code = tutorial_code().replace(
        "        def save(state):\n",
        "        def save(state):\n            1 / len(list(desk.root.glob('go')))\n",
    )
    assert code != tutorial_code()
    (project / "haiku_flow.py").write_text(code)
    first = run(stage, "haiku_flow:Haiku", "1", "--offline", "--retries", "0")
    assert first.code == 1 and "ZeroDivisionError" in first.out
    (project / "go").touch()
    second = run(stage, "haiku_flow:Haiku", "1", "--offline")
    assert second.code == 0
    assert [line for line in second.of("HAIKU-1") if "Executing" in line] == [">>> Executing: N1_save"]


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
    stage: Stage, project: Path, code: str, says: str
) -> None:
    site = install(stage, code, "mine=plugged:Mine")
    done = run(stage, "mine", "--all", "--offline", PYTHONPATH=site)
    assert done.code == 3 and says in done.err, done
    assert len(done.err.splitlines()) == 1 and not stage.home.joinpath("logs").exists()
    assert run(stage, "lld", "--all", "--dry-run", PYTHONPATH=site).code == 0


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("nowhere:Thing", "there is no module 'nowhere'"),
        ("json:Thing", "there is no 'Thing'; classes there: JSONDecodeError, JSONDecoder, JSONEncoder"),
        ("../x:y", "names no workflow"),
    ],
)
def test_what_is_not_there_is_a_usage_error(stage: Stage, project: Path, word: str, says: str) -> None:
    done = run(stage, word, "--all")
    assert done.code == 2 and says in done.err, done


def test_a_name_that_two_packages_claim_is_told(stage: Stage, project: Path) -> None:
    install(stage, tutorial_code(), "haiku=plugged:Haiku")
    site = install(stage, tutorial_code(), "haiku=other:Haiku", module="other")
    done = run(stage, "haiku", "--all", PYTHONPATH=site)
    assert done.code == 3 and "registered by other and plugged" in done.err


def test_a_graph_that_cannot_be_built_fails_its_item_at_once(stage: Stage, project: Path) -> None:
    code = tutorial_code().replace(
        "        graph = StateGraph(State)\n", "        graph = StateGraph(Stat)\n"
    )
    (project / "haiku_flow.py").write_text(code)
    done = run(stage, "haiku_flow:Haiku", "1", "--offline")
    assert done.code == 1 and done.out.count("graph() raised NameError") == 2
    assert stage.events("ItemRetried") == []


def test_files_of_the_project_stand_in_for_no_module(stage: Stage) -> None:
    """Neither in the coordinator nor in the processes that it starts."""
    stage.issue(42)
    for name in ("json", "langgraph", "click", "agentos"):
        (stage.project / f"{name}.py").write_text("raise SystemExit('pwned')\n")
    done = stage.run("42", "--offline")
    assert done.code == 0 and "pwned" not in done.out + done.err


def test_the_built_in_workflows_are_loaded_as_any_other() -> None:
    from agentos.workflows.registry import BUILT_IN, load_workflow

    for name, origin in BUILT_IN.items():
        workflow = load_workflow(origin, "")
        assert workflow.name == name and workflow.origin == origin
