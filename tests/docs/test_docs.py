"""The documentation is true: the audits pass and the marked examples run."""

from collections.abc import Callable

import pytest

from tests.audits import documentation, examples, generate, security
from tests.audits.check import Report
from tests.audits.pages import pages
from tests.audits.tree import ROOT

PAGES = [name for name in pages() if examples.marked(name)]


@pytest.mark.parametrize("run", [security.run, documentation.run], ids=["security", "documentation"])
def test_an_audit_finds_no_problem(run: Callable[[], Report]) -> None:
    report = run()
    assert report.passed, f"\n{report}"


@pytest.mark.parametrize(
    "name", [name if name == "README.md" else pytest.param(name, marks=pytest.mark.slow) for name in PAGES]
)
def test_every_marked_example_runs_as_its_page_shows(name: str) -> None:
    problems = examples.run_page(name)
    assert not problems, "\n" + "\n".join(problems)


def test_the_main_pages_have_examples_that_run() -> None:
    assert {"README.md", "docs/tutorial.md", "docs/how-to/lld-workflow.md"} <= set(PAGES)


def test_the_manual_pages_are_those_of_the_commands() -> None:
    for name, text in generate.man_pages().items():
        assert (ROOT / generate.MAN / name).read_text("utf-8") == text, "rewrite them with: make generate"


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) < 150
