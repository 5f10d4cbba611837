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
        ('prefix = "LLD"', 'prefix = "MINE"'),
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


REVIEWED = """
from agentos.workflows import (
    Candidate, Conclusion, Gate, ItemStatus, Verdict, Workflow, folder_items, read_page,
)
from agentos.workflows.human_gate import HumanGate
from agentos.workflows.review_loop import LengthRule, ReviewLoop, Routes, compose, is_over, reviews, with_metadata


class Essays(Workflow):
    name, prefix, folders, gates = "essay", "ESSAY", ("topics",), (Gate.DRAFT,)

    def candidates(self, project):
        return [Candidate(item, self.status(project, item)) for item in folder_items(self, project, "topics")]

    def status(self, project, item):
        done = (project / f"essays/{item.id}.md").exists()
        return ItemStatus.APPROVED if done else ItemStatus.PENDING

    def graph(self, context):
        loop = ReviewLoop(context, "essay", "topic", length=LengthRule(3, 100, 900))

        async def load(state):
            page = read_page(context.root / context.item.source)
            return await loop.load(page.body, page.problems)

        async def save(state):
            text = with_metadata(loop.metadata(state), loop.approved_document(state))
            context.folder.write(f"essays/{context.item.id}.md", text.encode())
            return {"result": f"essays/{context.item.id}.md"}

        def revise_or_save(state):
            return "save" if is_over(state) else "draft"

        nodes = {
            "load": load, "draft": loop.draft, "decide": HumanGate(context).human, "review": loop.review, "save": save,
        }
        return compose(nodes, {"review": Routes(("draft", "save"), revise_or_save)})

    def conclude(self, state):
        return Conclusion(Verdict(state["verdict"]), reviews(state), state["result"])
"""


@pytest.mark.slow
def test_a_workflow_of_ones_own_has_the_review_loop(harness: RunHarness) -> None:
    harness.issue(1, "weak")
    (harness.project / "issues").rename(harness.project / "topics")
    (harness.project / "essays.py").write_text(REVIEWED)
    prompts = harness.project / "prompts"
    shutil.copytree(Path(lld.__file__).parent / "prompts", prompts)
    for part in ("draft", "review"):
        text = (prompts / f"lld_{part}.md").read_text("utf-8")
        (prompts / f"lld_{part}.md").unlink()
        (prompts / f"essay_{part}.md").write_text(text.replace("$project", "").replace("$code", ""), "utf-8")
    parked = harness.run("run", "essays:Essays", "1", "--review", "draft", "--offline", program="agentos")
    assert parked.code == 0 and "Parked at decide" in parked.out, parked.out + parked.err
    assert harness.run("review", "ESSAY-1", "--approve", program="agentos").code == 0
    done = harness.run("run", "essays:Essays", "1", "--offline", program="agentos")
    assert done.code == 0 and "1 approved" in done.out, done.out + done.err
    text = (harness.project / "essays/ESSAY-1.md").read_text("utf-8")
    assert text.startswith('---\nitem: "ESSAY-1"\nstatus: "approved"\nrounds: 2\n')


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
