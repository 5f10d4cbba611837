"""The built-in workflows have no door of their own: as a module of a user's project, the same code does the same."""

import shutil
from pathlib import Path

import pytest

from agentos.workflows import lld
from tests.audits.tree import ROOT

from .harness import RunHarness

# Where the package knows a built-in workflow: reading issues from GitHub, what is loaded early, and texts for people.
KNOWN_BY_NAME = {
    "cli/__init__.py",
    "cli/demo.py",
    "diagnostics/doctor.py",
    "fleet/submission_journal.py",
    "review/queue.py",
    "run/context_preview.py",
    "run/discovery.py",
    "run/worker_variables.py",
    "worker/main.py",
    "worker/warm_up_items.py",
}


def own_module(project: Path) -> None:
    """The source of the built-in workflow under another name, with its prompts beside it as a user's would be."""
    source = Path(lld.__file__)
    text = source.read_text("utf-8")
    for old, new in (
        ('name = "lld"', 'name = "mine"'),
        ('workflow="lld"', 'workflow="mine"'),
        ('prefix = "LLD"', 'prefix = "MINE"'),
        ('id=f"LLD-', 'id=f"MINE-'),
        ("ReviewLoop(context, self.name,", 'ReviewLoop(context, "lld",'),
        ("LldWorkflow", "Mine"),
    ):
        assert old in text, old
        text = text.replace(old, new)
    (project / "mine.py").write_text(text)
    shutil.copytree(source.parent / "prompts", project / "prompts")


@pytest.mark.slow
def test_the_built_in_workflow_works_the_same_as_a_users_own(harness: RunHarness) -> None:
    for number, quality in ((1, "good"), (2, "weak")):
        harness.issue(number, quality)
    own_module(harness.project)
    harness.server()
    parked = harness.run("run", "mine:Mine", "--all", "--review", "draft", program="agentos")
    assert parked.code == 0, parked.out + parked.err
    for item in ("MINE-1", "MINE-2"):
        approved = harness.run("review", item, "--approve", program="agentos")
        assert approved.code == 0, approved.out + approved.err
    assert harness.run("run", "mine:Mine", "--all", program="agentos").code == 0
    own = [harness.document(number).read_text() for number in (1, 2)]
    for number in (1, 2):
        harness.document(number).unlink()
    assert harness.run("--all", "--review", "draft").code == 0
    for item in ("LLD-1", "LLD-2"):
        assert harness.run("review", item, "--approve", program="agentos").code == 0
    assert harness.run("--all").code == 0
    for number, text in enumerate(own, 1):
        built_in = harness.document(number).read_text()
        assert _body(text) == _body(built_in), f"document {number} differs"


def _body(document: str) -> str:
    return (
        document.partition("\n## ")[2].partition("<!--")[0].replace("MINE-", "LLD-").replace("-mine", "-lld")
    )


def test_the_engine_knows_the_built_in_workflows_only_where_it_must() -> None:
    source = ROOT / "src/agentos"
    names = ("BUILT_IN", "agentos.workflows.lld", "agentos.workflows.issue", "LldWorkflow", "IssueWorkflow")
    found = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if path.parent != source / "workflows" and any(name in path.read_text("utf-8") for name in names)
    }
    assert found <= KNOWN_BY_NAME, found - KNOWN_BY_NAME
