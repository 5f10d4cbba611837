"""The documentation is true: the audits pass, the marked examples run, the quotes are exact."""

from collections.abc import Callable

import pytest

from tests.audits import alignment, examples, inventory, security
from tests.audits.check import Report
from tests.audits.pages import pages
from tests.audits.tree import ROOT

PAGES = [name for name in pages() if examples.marked(name)]
REPORT = "docs/reports/parallel-execution/test-report.md"


@pytest.mark.parametrize("run", [security.run, alignment.run], ids=["0809", "0817"])
def test_an_audit_passes_and_is_quoted_word_for_word(run: Callable[[], Report]) -> None:
    report = run()
    assert report.passed, f"\n{report}"
    assert str(report) in (ROOT / REPORT).read_text("utf-8"), (
        "write it anew with: .venv/bin/python -m tests.audits.generate"
    )


@pytest.mark.parametrize(
    "name", [name if name == "README.md" else pytest.param(name, marks=pytest.mark.slow) for name in PAGES]
)
def test_every_marked_example_runs_as_its_page_says(name: str) -> None:
    objections = examples.run_page(name)
    assert not objections, "\n" + "\n".join(objections)


def test_there_are_examples_to_run() -> None:
    assert {"README.md", "docs/tutorial.md", "docs/how-to/lld-workflow.md"} <= set(PAGES)


def test_the_inventory_is_what_its_generator_writes() -> None:
    assert (ROOT / inventory.PAGE).read_text("utf-8") == inventory.text(), (
        "write it anew with: .venv/bin/python -m tests.audits.generate"
    )


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) < 150
